#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""losing_disk.py begin FOLDER: what is in it now is on the disk (see losing_disk.cpp, which notes what changes).
losing_disk.py lose FOLDER SEED: the folder becomes what a loss of power would have left, and begins anew. Names are
changed in order, as file systems with a journal do it: a flush of a folder keeps the changes in it and all before them,
and of later ones as many as the seed says. A file has what it had when it was last flushed; without a flush it is
empty, has zeros, or a part of what was written."""
import random
import shutil
import sys
from pathlib import Path


def begin(folder, shadow):
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(shadow, ignore_errors=True)
    shutil.copytree(folder, shadow / "base")
    (shadow / "changes").touch()


def names(folder):
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


def inside(path, folder):
    return path == folder or path.startswith(folder + "/")


def lose(folder, shadow, seed):
    draw = random.Random(seed)
    text = (shadow / "changes").read_text()
    lines = [line.split("\t") for line in text[:text.rfind("\n") + 1].splitlines()]
    lines = [line for line in lines if len(line) == 3]  # not one that a kill has cut
    if not lines and names(folder) != names(shadow / "base"):
        sys.exit("losing_disk: the folder has changed and nothing was noted: the library was not loaded")
    changes, stay = [], 0
    for what, how, path in lines:
        if what != "flush":
            changes.append((what, how, path))
            continue
        for i, (kind, other, name) in enumerate(changes):
            places = [name] + [other] * (kind == "rename")
            if any(str(Path(place).parent) == path for place in places):
                stay = max(stay, i + 1)
    kept = draw.randint(stay, len(changes))
    # By path: None is a folder, otherwise bytes or the key of a file.
    there = {str(folder / one.relative_to(shadow / "base")): None if one.is_dir() else one.read_bytes()
             for one in sorted((shadow / "base").rglob("*"))}
    for what, how, path in changes[:kept]:
        if what == "make":
            there[path] = how
        elif what == "folder":
            there[path] = None
        elif what == "remove":
            there.pop(path, None)
        else:
            moved = {path + name[len(how):]: of for name, of in there.items() if inside(name, how)}
            there = {name: of for name, of in there.items() if not inside(name, how) and not inside(name, path)} | moved
    live = {}
    for one in shadow.glob("inode-*"):
        if one.suffix != ".new":
            live[one.read_text()] = int(one.name.removeprefix("inode-"))
    now = {one.stat().st_ino: one for one in folder.rglob("*") if one.is_file()}

    def content(of):
        if isinstance(of, bytes):
            return of
        if (shadow / of).exists():
            return (shadow / of).read_bytes()
        written = now[live[of]].read_bytes() if live.get(of) in now else b""
        return draw.choice((b"", bytes(len(written)), written[:draw.randint(0, len(written))]))

    image = {path: None if of is None else content(of) for path, of in there.items()}
    shutil.rmtree(folder)
    folder.mkdir()
    for path, of in image.items():
        if of is None:
            Path(path).mkdir(parents=True, exist_ok=True)
    for path, of in image.items():
        if of is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(of)
    print(f"losing_disk: {kept} of {len(changes)} changes of names are left, {stay} had to be")
    begin(folder, shadow)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("begin", "lose"):
        sys.exit(__doc__)
    folder = Path(sys.argv[2])
    shadow = Path(f"{folder}.shadow")
    if sys.argv[1] == "begin":
        begin(folder, shadow)
    else:
        lose(folder, shadow, sys.argv[3])


main()
