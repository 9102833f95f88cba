// SPDX-License-Identifier: BSD-3-Clause
// Matrix products beside those of other libraries: repeats of [peak, ours, peak, peer, ..], so that a drift of the
// clock shows in all of them.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/kernels/matrix/gemm_lanes.hpp"
#include "measure.hpp"

#if defined(LOCKSTEP_PEER_OPENBLAS)
#include <cblas.h>
#endif
#if defined(LOCKSTEP_PEER_DNNL)
#include <dnnl.hpp>
#include <unordered_map>
#endif
#if defined(LOCKSTEP_PEER_XSMM)
#include <libxsmm.h>
#endif

namespace {

using namespace lockstep;
using namespace benchmark;
using kernels::transpose;

constexpr const char* usage =
    R"(Products C = op(A) op(B) on one core, one line for each shape and transpose: the fraction of the FMA peak that lockstep reaches, the ratio to the
best peer, and the GFLOP/s of all of them. "lanes" is the weight gradient over 8 lanes, beside the plain product of the same size.

usage: gemm [--shapes MxNxK,..] [--ops NN,NT,TN,lanes] [--repeats N] [--double]
  --repeats N   measurements of each product; medians are printed [9]
  --double      double precision, without peers
Pin it (taskset -c 1). With OPENBLAS_CORETYPE set, OpenBLAS does not choose its kernels itself.
)";

constexpr const char* all_shapes =
    "512x512x512,1024x1024x1024,2048x2048x2048,64x4096x25088,256x4096x25088,64x4096x4096,256x4096x4096,256x1000x4096,"
    "64x3072x36864,"
    "1024x2048x2048,1024x9304x2048,1024x2048x429,64x64x64,128x128x128,32x10x84,4096x25088x64,4096x4096x256,"
    "9304x2048x1024,2048x2048x1024";

struct sizes {
    std::size_t m, n, k;
    bool ta, tb;
    std::size_t lda() const { return ta ? m : k; }
    std::size_t ldb() const { return tb ? k : n; }
};

void add_peers([[maybe_unused]] std::vector<contender>& all, [[maybe_unused]] const sizes& s,
               [[maybe_unused]] const float* a, [[maybe_unused]] const float* b, [[maybe_unused]] float* c) {
#if defined(LOCKSTEP_PEER_OPENBLAS)
    all.push_back({"openblas", [=] {
                       const auto size = [](std::size_t n) { return static_cast<blasint>(n); };
                       cblas_sgemm(CblasRowMajor, s.ta ? CblasTrans : CblasNoTrans, s.tb ? CblasTrans : CblasNoTrans,
                                   size(s.m), size(s.n), size(s.k), 1.0F, a, size(s.lda()), b, size(s.ldb()), 0.0F, c,
                                   size(s.n));
                   }});
#endif
#if defined(LOCKSTEP_PEER_DNNL)
    const auto size = [](std::size_t n) { return static_cast<dnnl_dim_t>(n); };
    all.push_back({"onednn", [=] {
                       dnnl_sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', size(s.m), size(s.n), size(s.k), 1.0F, a,
                                  size(s.lda()), b, size(s.ldb()), 0.0F, c, size(s.n));
                   }});
    // With weights in the layout that the primitive prefers, reordered beforehand.
    using namespace dnnl;
    static engine cpu(engine::kind::cpu, 0);
    static stream line(cpu);
    const auto f32 = memory::data_type::f32;
    const auto tag = [](bool t) { return t ? memory::format_tag::ba : memory::format_tag::ab; };
    const memory::desc da({size(s.m), size(s.k)}, f32, tag(s.ta)), db({size(s.k), size(s.n)}, f32, tag(s.tb));
    const memory::desc any({size(s.k), size(s.n)}, f32, memory::format_tag::any),
        dc({size(s.m), size(s.n)}, f32, tag(false));
    const matmul::primitive_desc kind(matmul::desc(da, any, dc), cpu);
    memory ma(da, cpu, const_cast<float*>(a)), mb(db, cpu, const_cast<float*>(b)), mc(dc, cpu, c);
    memory weights = mb;
    if (kind.weights_desc() != db) {
        weights = memory(kind.weights_desc(), cpu);
        reorder(mb, weights).execute(line, mb, weights);
        line.wait();
    }
    const std::unordered_map<int, memory> operands{{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, mc}};
    all.push_back({"onednn-packed", [product = matmul(kind), operands] {
                       product.execute(line, operands);
                       line.wait();
                   }});
#endif
#if defined(LOCKSTEP_PEER_XSMM)
    // Column-major: C^T = op(B)^T op(A)^T. One generated kernel, for small shapes.
    if (s.m * s.n * s.k <= 256UL * 256 * 256) {
        const auto number = [](std::size_t n) { return static_cast<libxsmm_blasint>(n); };
        const libxsmm_blasint la = number(s.ldb()), lb = number(s.lda()), lc = number(s.n);
        const float alpha = 1, beta = 0;
        const int flags = (s.tb ? LIBXSMM_GEMM_FLAG_TRANS_A : 0) | (s.ta ? LIBXSMM_GEMM_FLAG_TRANS_B : 0);
        const auto kernel =
            libxsmm_smmdispatch(number(s.n), number(s.m), number(s.k), &la, &lb, &lc, &alpha, &beta, &flags, nullptr);
        if (kernel) all.push_back({"libxsmm", [=] { kernel(b, a, c); }});
    }
#endif
}

template <class T>
void measure(const std::string& shape, const std::string& op, const sizes& s, int repeats) {
    const parallel::team team{1};
    const buffer<T> a(s.m * s.k, 1), b(s.k * s.n, 2), c(s.m * s.n);
    std::vector<parallel::block> lanes;
    for (std::size_t lane = 0; lane < 8; ++lane) lanes.push_back(parallel::split(s.k, 8, lane));
    const buffer<T> scratch(std::max(kernels::gemm_scratch<T>(s.m, s.n, s.k, team),
                                     kernels::gemm_lanes_scratch<T>(lanes.size(), s.k, s.m, s.n, team)));
    const kernels::resources<T> use{team, scratch.all()};
    const auto way = [](bool transposed) { return transposed ? transpose::yes : transpose::no; };
    const std::function<void()> plain = [&] {
        kernels::gemm<T>(way(s.ta), way(s.tb), s.m, s.n, s.k, a.data(), s.lda(), b.data(), s.ldb(), c.data(), s.n,
                         nullptr, use);
    };
    std::vector<contender> all;
    if (op == "lanes") {
        all.push_back({"lockstep", [&] {
                           kernels::gemm_lanes<T>(lanes, s.m, s.n, a.data(), s.m, b.data(), s.n, c.data(), s.n, use);
                       }});
        all.push_back({"plain", plain});
    } else {
        all.push_back({"lockstep", plain});
        if constexpr (sizeof(T) == sizeof(float)) add_peers(all, s, a.data(), b.data(), c.data());
    }
    const double gflop = 2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    take_turns<T>(all, gflop, repeats);
    double best = 0;
    for (std::size_t i = 1; i < all.size(); ++i) best = std::max(best, median(all[i].rates));
    std::printf("%-16s %-5s peak %.3f", shape.c_str(), op.c_str(), median(all[0].fractions));
    if (all.size() > 1) std::printf("  ratio %.3f", median(all[0].rates) / best);
    for (const contender& each : all) std::printf("  %s %.1f", each.name.c_str(), median(each.rates));
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    std::string shapes = all_shapes, ops = "NN,NT,TN,lanes";
    int repeats = 9;
    bool twice = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view key = argv[i];
        const bool has_value = i + 1 < argc;
        if (key == "--shapes" && has_value)
            shapes = argv[++i];
        else if (key == "--ops" && has_value)
            ops = argv[++i];
        else if (key == "--repeats" && has_value)
            repeats = std::max(1, std::atoi(argv[++i]));
        else if (key == "--double")
            twice = true;
        else {
            std::fputs(usage, key == "--help" ? stdout : stderr);
            return key == "--help" ? 0 : 2;
        }
    }
    if (const char* core = std::getenv("OPENBLAS_CORETYPE"))
        std::fprintf(stderr, "note: OPENBLAS_CORETYPE=%s is set; OpenBLAS does not choose its kernels itself\n", core);
#if defined(LOCKSTEP_PEER_OPENBLAS)
    openblas_set_num_threads(1);
#endif
    for (const std::string& shape : benchmark::split(shapes))
        for (const std::string& op : benchmark::split(ops)) {
            if (op != "NN" && op != "TN" && op != "NT" && op != "lanes") {
                std::fprintf(stderr, "%s: '%s' is none of NN, TN, NT, lanes (see --help)\n", argv[0], op.c_str());
                return 2;
            }
            sizes s{0, 0, 0, op[0] == 'T' || op == "lanes", op == "NT"};
            if (std::sscanf(shape.c_str(), "%zux%zux%zu", &s.m, &s.n, &s.k) != 3) {
                std::fprintf(stderr, "%s: '%s' is no shape MxNxK (see --help)\n", argv[0], shape.c_str());
                return 2;
            }
            if (twice)
                measure<double>(shape, op, s, repeats);
            else
                measure<float>(shape, op, s, repeats);
        }
    return 0;
}
