// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into compilers by scripts/huge_pages: their memory, and the precompiled header they map, lies on transparent
// huge pages. In a virtual machine the first access to a page of 4 KiB can take 8 to 16 us, and a compiler makes 100,000
// of them.
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { huge_page = 2 << 20, chunk = 128 << 20 };

static void *map(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

// Pieces lie one behind the other, so that huge pages are full. GCC has one thread.
static void *piece(size_t size) {
    static char *next, *end;
    size = (size + 4095) & ~(size_t)4095;
    if (next == NULL || (size_t)(end - next) < size) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        char *all = map(NULL, chunk + huge_page, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, -1, 0);
        // Limits may refuse so much, and a page may still be had.
        if (all == MAP_FAILED) return map(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
        next = (char *)(((uintptr_t)all + huge_page - 1) & ~(uintptr_t)(huge_page - 1));
        end = next + chunk;
        madvise(next, chunk, MADV_HUGEPAGE);
    }
    char *const begin = next;
    next += size;
    return begin;
}

// A precompiled header has to lie where it was written: GCC asks for the address, and takes another one for a failure.
static void *copy(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    char *const to = map(address, size, protection, flags | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED) return to;
    madvise(to, size, MADV_HUGEPAGE);
    for (size_t done = 0; done < size;) {
        const ssize_t read = pread(file, to + done, size - done, offset + (off_t)done);
        if (read == 0) break;  // what lies behind the end of the file is 0
        if (read < 0) {
            munmap(to, size);
            return MAP_FAILED;
        }
        done += (size_t)read;
    }
    return to;
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    const int writable = PROT_READ | PROT_WRITE;
    if (protection == writable && flags == (MAP_PRIVATE | MAP_ANONYMOUS) && address == NULL && size <= chunk)
        return piece(size);
    if (protection == writable && flags == MAP_PRIVATE && address != NULL && size >= huge_page)
        return copy(address, size, protection, flags, file, offset);
    return map(address, size, protection, flags, file, offset);
}

void *mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    return mmap(address, size, protection, flags, file, offset);
}
