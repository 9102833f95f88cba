# SPDX-License-Identifier: BSD-3-Clause
"""The questions of benchmarks/report. Each is a function of a run: it runs commands, and returns the columns of its table and
the records, one for each row. Its documentation is the title and a sentence. Columns read `header {field:format} | ..`; one without any
figure is left out."""
import itertools
import re
import statistics

NETWORKS = {"lenet-5": 128, "mlp": 128, "cd-dnn": 1024, "resnet-20": 128, "resnet-44": 128, "overfeat-fast": 32, "vgg-a": 32}
SIZES = ["4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M"]
QUESTIONS = {}


def question(function):
    QUESTIONS[function.__name__] = function
    return function


def merge(records, *keys):
    """One record for all with the same keys: the medians of their numbers."""
    groups = {}
    for record in records:
        group = groups.setdefault(tuple(record[key] for key in keys), {})
        for key, value in record.items():
            group.setdefault(key, []).append(value)
    return [{key: statistics.median_low(values) if isinstance(values[0], (int, float)) else values[0]
             for key, values in group.items()} for group in groups.values()]


@question
def step(run):
    """How fast is a whole training step?
    Forward, loss, backward, communication and update, with a core for each rank or thread."""
    ours = "@bench_train --case {network} " + run.few("--repeats 1 --seconds 2", "--repeats 1 --seconds 0.05")
    theirs = " --capability {capability} --models {network} --reps 3 " + run.few("--min-time 2 --warmup 2", "--min-time 0 --warmup 1")
    ways = [(1, 1, "taskset -c {core} " + ours, "taskset -c {core} {python} {peers}/torch_train.py --threads 1" + theirs),
            (1, 2, "OMP_PROC_BIND=true taskset -c {pair} " + ours + " --threads 2",
             "OMP_PROC_BIND=true taskset -c {pair} {python} {peers}/torch_train.py --threads 2" + theirs),
            (2, 1, "scripts/mpirun -n 2 --bind-to core " + ours + " --transport automatic",
             "{python} {peers}/torch_ddp.py --cores {pair} --modes ddp --batch {half}" + theirs)]
    found = []
    for network in NETWORKS:
        for ranks, threads, our, their in ways * run.few(3, 1):
            key = {"network": network, "ranks": ranks, "threads": threads}
            found += run.records(our, **key)
            theirs_found = run.records(their, **key, half=NETWORKS[network] // 2)
            found += [{**key, "torch": line["images_per_s"]} for line in theirs_found if "images_per_s" in line]
    found = merge(found, "network", "ranks", "threads")
    for line in found:
        if "torch" in line and "samples_per_second" in line:
            line["ratio"] = line["samples_per_second"] / line["torch"]
    return """network {network} | batch {batch} | ranks {ranks} | threads of a rank {threads} | step, ms {ms:.2f} |
        samples/s {samples_per_second:.1f} | GFLOP/s {gflops:.1f} | of the FMA peak, % {fraction_of_peak:.0%} |
        communication exposed, % {exposed_percent:.1f} | PyTorch, samples/s {torch:.1f} |
        lockstep / PyTorch {ratio:.2f}""", found


@question
def products(run):
    """How fast are matrix products?
    One core, float; `lanes` is the weight gradient over 8 lanes beside the plain product, `ratio` is lockstep over the best of
    the others."""
    lines = run.lines("taskset -c {core} @bench_gemm " + run.few("--repeats 9", "--repeats 1 --shapes 512x512x512,64x64x64"))
    rows = [line.split() for line in lines]
    return """M x N x K {shape} | product {op} | lockstep, GFLOP/s {lockstep:.1f} | of the FMA peak, % {peak:.0%} |
        plain, GFLOP/s {plain:.1f} | OpenBLAS, GFLOP/s {openblas:.1f} | oneDNN, GFLOP/s {onednn:.1f} |
        oneDNN packed, GFLOP/s {onednn-packed:.1f} | libxsmm, GFLOP/s {libxsmm:.1f} | ratio {ratio:.2f}""", [
        {"shape": row[0], "op": row[1], **dict(zip(row[2::2], map(float, row[3::2])))} for row in rows]


@question
def convolutions(run):
    """How fast are convolutions?
    One core, float; GFLOP/s as the direct algorithm counts them, beside the same algorithm of oneDNN."""
    command = "taskset -c {core} @bench_convolutions --algorithm {algorithm} " + run.few("--repeats 9", "--repeats 1 --batch 1")
    found = []
    for line in run.records(command, algorithm="direct") + run.records(command, algorithm="rule"):
        layer, of = line["case"].split(".")
        found.append({"layer": layer, "algorithm": line["algorithm"], "batch": line["batch"], **{f"{of}_{key}": line.get(key) for key in
                      ("gflops", "fraction_of_peak", "ratio")}})
    columns = "layer {layer} | algorithm {algorithm} | batch {batch}"
    for of, name in (("forward", "forward"), ("backward_data", "data gradient"), ("backward_weights", "weight gradient")):
        columns += f" | {name}, GFLOP/s {{{of}_gflops:.1f}} | % of the FMA peak {{{of}_fraction_of_peak:.0%}}"
        columns += f" | {name}, lockstep / oneDNN {{{of}_ratio:.2f}}"
    return columns, merge(found, "layer", "algorithm")


@question
def bandwidth(run):
    """How fast are kernels that move more than they compute?
    One core, float, beside a copy of as many bytes."""
    return """kernel {case} | largest array, MiB {megabytes} | time, ms {ms:.2f} | GB/s {gbytes_per_second:.1f} |
        of the rate of a copy, % {fraction_of_copy:.0%}""", run.records(
        "taskset -c {core} @bench_memory " + run.few("--repeats 7", "--repeats 1 --megabytes 16"))


@question
def trainer(run):
    """What does the trainer cost beside a plain loop?
    One core; single steps of the trainer in turns with forward, loss, backward and update written as a loop."""
    command = "taskset -c {core} @bench_train --serial --case {network} " + run.few("--repeats 10 --seconds 1", "--seconds 0.05")
    return """network {network} | batch {batch} | turns {turns} | loop, ms {serial_ms:.3f} | trainer / loop {ratio:.3f} |
        quartiles {ratio_quartiles[0]:.3f} to {ratio_quartiles[1]:.3f}""", [
        line for network in ("lenet-5", "mlp", "resnet-20") for line in run.records(command, network=network)]


@question
def allreduce(run):
    """How fast is all-reduce on one node?
    2 ranks on 2 cores, float, GB/s = bytes / time of the slowest rank; `bound` is the work of `shared` without a wait."""
    found = []
    for size in SIZES:
        ours = run.records("OMPI_MCA_btl_vader_single_copy_mechanism=cma scripts/mpirun -n 2 --bind-to core @bench_collectives "
                           "--methods bound,shared,tree,doubling,mpi,impi --sizes {size} " +
                           run.few("--min-time 0.5", "--min-time 0.02 --reps 3"), size=size)
        gloo = run.records("{python} {peers}/allreduce_gloo.py --capability {capability} --ranks 2 "
                           "--cores {pair} --sizes {size} " +
                           run.few("--min-time 0.5 --reps 7", "--min-time 0.02 --reps 3"), size=size)
        record = {line.get("method", "gloo"): line["algorithm_GB_per_s"] for line in ours + gloo if "algorithm_GB_per_s" in line}
        if "shared" in record:
            best = max(record.get(name, 0) for name in ("mpi", "impi", "gloo"))
            found.append({**record, "size": size.replace("K", " KiB").replace("M", " MiB"), "ratio": record["shared"] / best})
    return """size {size} | bound, GB/s {bound:.3g} | shared, GB/s {shared:.3g} | tree, GB/s {tree:.3g} |
        doubling, GB/s {doubling:.3g} | MPI_Allreduce, GB/s {mpi:.3g} | MPI_Iallreduce, GB/s {impi:.3g} | gloo, GB/s {gloo:.3g} |
        shared / best of MPI and gloo {ratio:.2f}""", found


@question
def hosts(run):
    """How fast is all-reduce between hosts?
    4 emulated hosts, links of 1 Gbit/s; the bound is 2n(h-1)/h bytes at the full rate."""
    found = run.records("benchmarks/cluster/run --hosts 4 --rate 1gbit -- @bench_cluster --mebibytes 1,64 " +
                        run.few("--repeats 9", "--repeats 1"))
    return "method {case} | size, MiB {mib:.0f} | time, ms {ms:.2f} | of the bound, % {of_bound:.0%}", [
        {**line, "mib": line["bytes"] / 2**20, "ms": 1e3 * line["seconds"]} for line in found if "of_bound" in line]


@question
def overlap(run):
    """How much communication is hidden?
    2 ranks; `hidden` is the share of what could be hidden at best, `gained` the difference to steps without overlap."""
    found = []
    for network, batch, bucket in (("vgg", 128, 100000), ("lenet5", run.few(4096, 512), 10000)):
        size = f"--net {network} --batch {batch} --bucket {bucket} --steps {run.few(10, 3)} --turns {run.few(4, 1)}"
        for transport in ("automatic", "messages"):
            lines = run.records("scripts/mpirun -n 2 --bind-to core @bench_overlap --transport {transport} " + size,
                                transport=transport)
            # Through shared memory a step sends no bytes, so there is no part of them that could be hidden.
            found += [{**line, "links": f"one node, {transport}", "of_hideable": line["hideable"] and line["of_hideable"]} for line in lines]
        for share in run.few((0.5, 0.8), (0.5,)):
            record, names = {"net": network, "batch": batch}, []
            for line in run.lines("BUILD={build} benchmarks/overlap/at_share --hosts 2 --share {share} " +
                                  run.few("--series 5", "--series 1 --trials 2") + " -- " + size, share=share, network=network):
                first, *rest = line.split()
                if rate := re.search(r"links of (\d+) kbit/s", line):
                    record["links"] = f"2 hosts, {int(rate[1]) / 1000:.0f} Mbit/s"
                elif first == "progress":
                    names = rest
                elif first == "median":
                    found.append({**record, **dict(zip(names, map(float, rest)))})
                elif first in ("least", "most"):
                    found[-1][first] = float(rest[names.index("of_hideable")])
                else:
                    record["progress"] = first
    return """network {net} | batch {batch} | links {links} | progress by {progress} | compute, ms {compute:.2f} |
        communication, ms {blocking:.2f} | exposed, ms {exposed:.2f} | hidden, % {of_hideable:.0%} |
        least to most of the series, % {least:.0%} to {most:.0%} | gained, ms {gained:.2f} | step, ms {step:.2f}""", found


@question
def compression(run):
    """What do workers and compression cost?
    The network mlp of examples/train at batch 128; memory is that of rank 0, `sent` that of the rank that sends most."""
    found, counts = [], ["one a rank", "8"]
    if not run.has_option("train", "--workers"):
        counts.pop()
        run.miss("8 workers", "examples/train has no option --workers")
    rows = [("none", "automatic", "-"), ("none", "messages", "-")]
    rows += itertools.product(("topk:0.01", "quantize:4"), ("messages",), counts)
    command = "scripts/mpirun -n {ranks} --bind-to core @train --net mlp --train-samples 2048 --test-samples 128 --quiet"
    command += f" --steps {run.few(200, 5)} --report {{file}} --transport {{transport}} --compress {{compressor}}"
    for ranks, (compressor, transport, workers) in itertools.product((1, 2), rows):
        more = " --workers 8" if workers == "8" else ""
        for line in run.report(command + more, ranks=ranks, transport=transport, compressor=compressor):
            plan, steps = line["plan"], line["steps"]
            mb = {f"{key}_mb": value / 1e6 for key, value in {**plan["memory"], "all": plan["memory_bytes"]}.items()}
            found.append({**line, **mb, "workers": workers, "ms": 128e3 / line["samples_per_second"],
                          "exposed": 1e3 * line["seconds"]["communication_exposed"] / steps,
                          "kb": line["bytes_sent_per_rank"] / steps / 1e3})
    return """compressor {compressor} | transport {transport} | workers {workers} | ranks {ranks} | step, ms {ms:.2f} |
        exposed, ms {exposed:.2f} | sent in a step, kB {kb:.1f} | memory, MB {all_mb:.2f} | of it optimizer, MB {optimizer_mb:.2f} |
        of it messages, MB {messages_mb:.2f}""", found


@question
def workers(run):
    """What do more or fewer workers than ranks cost?
    784-512-512-10 at batch 128 and four lanes for each rank; times are those of the slowest rank, numbers of workers in turns, `ratio` to one
    worker a rank. Where there are fewer cores than ranks, times show only what all ranks compute together."""
    found = []
    size = run.few("", " --steps 3 --turns 2")
    for ranks, compressor in itertools.product((2, 4), ("topk", "quantize", "powersgd", "terngrad")):
        found += run.records("scripts/mpirun -n {ranks} --bind-to {bind} @bench_workers --compressor {compressor}" + size,
                             ranks=ranks, bind="core" if ranks == 2 else "none", compressor=compressor)
    return """compressor {compressor} | ranks {ranks} | workers {workers} | step, ms {step_ms:.2f} |
        quartiles, ms {low_ms:.2f} to {high_ms:.2f} | ratio {ratio:.2f} | sent in a step, kB {kb:.1f} | memory, MB {memory_mb:.2f} |
        of it gradients, MB {gradients_mb:.2f} | of it optimizer, MB {optimizer_mb:.2f} | of it messages, MB {messages_mb:.2f}""", found


@question
def pipelines(run):
    """When does a pipeline pay?
    Two stages beside data parallelism on two ranks, batch 128, in turns: on one node, and on two emulated hosts. `speed-up` is over data
    parallelism; a rank `waits` for others at least that share of its steps. Weights and state have the same bits."""
    found = []
    size = run.few("", " --steps 2 --turns 1")
    for net, links in itertools.product(("dense", "lenet"), ("one node", "10gbit", "1gbit", "100mbit")):
        where = "scripts/mpirun -n 2 --bind-to core" if links == "one node" else "benchmarks/cluster/run --hosts 2 --rate {links} --pin --"
        for line in run.records(f"OMP_NUM_THREADS=1 {where} @bench_pipeline --net {{net}}" + size, net=net, links=links):
            if not line["same_bits"]:
                run.miss(f"{net}, {links}", "a pipeline has other bits than data parallelism")
            found.append(line)
    return """network {net} | links {links} | partition {partition} | micro-batches {micro_batches} | step, ms {step_ms:.1f} |
        quartiles, ms {low_ms:.1f} to {high_ms:.1f} | speed-up {ratio:.2f} | waits, % {waits:.0%} | sent in a step, kB {kb:.0f} |
        memory, MB {memory_mb:.1f}""", found


@question
def slow_ranks(run):
    """What does a slow rank cost?
    Synchronous steps and a parameter server of two ranks, in turns; the last rank sleeps so long for each row that it reads. `speed-up` is over
    synchronous steps. A replay of each server's arrivals has the bits of the run."""
    found = []
    size = run.few("", " --steps 3 --turns 1")
    for net, batch, rows in (("mlp", 128, (0, 40, 400)), ("lenet", 64, (0, 400, 4000))):
        for slow in rows:
            for line in run.records("OMP_NUM_THREADS=1 scripts/mpirun -n 2 --bind-to core @bench_parameter_server --net {net} --batch {batch} "
                                    "--row-us {slow}" + size, net=net, batch=batch, slow=slow):
                if not line["same_bits"]:
                    run.miss(f"{net}, {slow} us", "a replay has other bits than the run")
                found.append(line)
    return """network {net} | batch {batch} | slow by, us a row {row_us} | strategy {sync} | update, ms {step_ms:.1f} |
        quartiles, ms {low_ms:.1f} to {high_ms:.1f} | speed-up {ratio:.2f} | gradients of the slow rank, % {slow_share:.0%} |
        staleness {staleness:.2f} | sent for an update, kB {kb:.0f}""", found


@question
def memory(run):
    """How much memory does a process take?
    Largest resident set after a few steps, one rank and thread; `planned` is what the trainer says."""
    found = []
    for network, batch in {**NETWORKS, "vgg-a": run.few(64, 8)}.items():
        key = {"network": network, "batch": batch}
        found += run.records("taskset -c {core} @bench_train --case {network} --batch {batch} --repeats 1 --seconds 0.05", **key)
        for line in run.records("taskset -c {core} {python} {peers}/torch_train.py --capability {capability} "
                                "--models {network} --batch {batch} --warmup 1 --reps 1 --min-time 0", **key):
            found.append({**key, "torch_mb": line["process_mb"]})
    return """network {network} | batch {batch} | process, MB {process_mb:.0f} | planned, MB {memory_mb:.0f} |
        PyTorch, MB {torch_mb:.0f}""", merge(found, "network", "batch")


@question
def compiling(run):
    """How long do programs compile?
    One translation unit at -O3; a unit of cost is the time of a short compile on the same core at the same time."""
    found = []
    for form, flags in (("header-only", ""), ("compiled", "FLAGS=-DLOCKSTEP_COMPILED ")):
        for file in ("examples/smallest.cpp", "benchmarks/compile_time/predict.cpp"):
            command = f"{flags}PROGRAM={file} RUNS={run.few(2, 1)} benchmarks/compile_time/compare ."
            for line in run.records(command, form=form):
                found.append({"file": file, "form": form, "cost": line["cost"], "peak_mb": line["peak_mb"]})
        if run.few(False, True):
            run.miss("seconds of the examples", "left out by --quick")
            continue
        for line in run.records(flags + "RUNS=3 benchmarks/compile_time/run", form=form):
            found.append({**line, "form": "compiled" if line["file"].startswith("src/") else form})
    return """file {file} | form {form} | user time, s {user_seconds:.1f} | wall time, s {seconds:.1f} | memory, MiB {peak_mb} |
        cost, units {cost:.1f}""", merge(found, "file", "form")


@question
def compressors(run):
    """How fast are compressors?
    One core; GB/s of float gradient encoded, and decoded and added, beside reading it."""
    found = run.records("taskset -c {core} @bench_compress" + run.few("", " --repeats 1"))
    found += run.records("taskset -c {core} @bench_compression" + run.few("", " --numbers 65536"))
    return "case {case} | GB/s {rate:.2f} | of the rate of reading, % {of_reading:.0%}", [
        {**line, "rate": line.get("gb_s", line.get("gb_per_s")),
         "of_reading": line.get("fraction_of_reading", line.get("of_read"))} for line in found]


CLUSTERS = list(itertools.product(("lenet", "vgg", "cd_dnn"), (2, 4), ("100mbit", "1gbit", "10gbit")))
ON_CLUSTER = "OMP_NUM_THREADS=1 benchmarks/cluster/run --hosts {hosts} --rate {rate} --pin -- "


@question
def links(run):
    """What does compression gain over slow links?
    2 emulated hosts with a rank each; steps of examples/train at batch 128, methods in turns; speed-up over dense."""
    size = run.few(" --turns 3", " --turns 1 --rates 1gbit --nets mlp --methods none,topk:0.01")
    rows = [line.split(",") for line in run.lines("benchmarks/compression/links --train @train" + size)]
    times = {tuple(row[:4]): float(row[4]) for row in rows if len(row) == 6 and row[0] != "net"}
    found = []
    for (net, rate, method, turn), ms in times.items():
        mbit = float(rate[:-4]) * (1000 if rate.endswith("gbit") else 1)
        gain = times[net, rate, "none", turn] / ms
        found.append({"net": net, "mbit": mbit, "method": method, "ms": ms, "gain": gain})
    found.sort(key=lambda line: (line["net"], line["mbit"], line["method"] != "none"))
    return """network {net} | links, Mbit/s {mbit:.0f} | method {method} | step, ms {ms:.2f} |
        speed-up {gain:.2f}""", merge(found, "net", "mbit", "method")


@question
def methods(run):
    """Which method is fastest on which cluster?
    Emulated hosts with a rank each, batch 64 of all, methods in turns with the settings of benchmarks/methods/main.cpp,
    the least of the turns; speed-up over `none`. The best is the fastest of all methods but randomk and randomblock,
    which leave out more of a gradient than `adaptive` allows: 1 % of the numbers, at random, have about a tenth of its
    norm."""
    found = []
    for net, hosts, rate in CLUSTERS:
        size = run.few("--seconds 0.4 --turns 4", "--seconds 0.1 --turns 1 --methods none,topk,adaptive")
        if net == "cd_dnn":
            size = run.few("--seconds 1 --turns 1", "--seconds 0.1 --turns 1 --methods none,topk")
        lines = run.records(ON_CLUSTER + "@bench_methods --net {net} " + size, net=net, hosts=hosts, rate=rate)
        times = {line["method"]: line["step_ms"] for line in lines}
        for line in lines:
            line["gain"] = times["none"] / line["step_ms"]
            if line["method"] == "adaptive":
                others = [time for name, time in times.items() if name not in ("adaptive", "randomk", "randomblock")]
                line["of_best"] = min(others) / line["step_ms"]
        found += lines
    return """network {net} | hosts {hosts} | links {rate} | method {method} | step, ms {step_ms:.2f} |
        speed-up {gain:.2f} | of the speed of the best {of_best:.2f}""", found


@question
def ddp(run):
    """How fast is PyTorch's DistributedDataParallel on these clusters?
    As it is over gloo, and with its hooks for fp16 and PowerSGD of rank 2, beside methods of lockstep; speed-up over
    `none` of lockstep."""
    if not run.given.dry_run and run.no_peers:
        return "", run.miss("all of it", run.no_peers)
    found, size = [], run.few("--seconds 2 --turns 1", "--seconds 0.1 --turns 1")
    ours = ON_CLUSTER + "@bench_methods --net {net} --methods none,fp16,powersgd,adaptive " + size
    peer = "ATEN_CPU_CAPABILITY={capability} " + ON_CLUSTER + "{python} benchmarks/methods/ddp_peer.py --net {net} " + size
    for net, hosts, rate in CLUSTERS:
        key = {"net": net, "hosts": hosts, "rate": rate}
        lines = run.records(ours, **key)
        none = next((line["step_ms"] for line in lines if line["method"] == "none"), None)
        lines += run.records(peer, **key)
        found += [{**line, "gain": none and none / line["step_ms"]} for line in lines]
    return """network {net} | hosts {hosts} | links {rate} | method {method} | step, ms {step_ms:.2f} |
        speed-up {gain:.2f}""", found


@question
def changing_links(run):
    """What does `adaptive` do when links change?
    Two emulated hosts with a rank each, batch 64, 300 steps at each rate, of one run with each method. Steps are the
    median of the last third; slow steps are those before them that took more than a fifth longer."""
    size = run.few("--methods none,topk,powersgd,adaptive", "--methods none,adaptive --steps 20")
    return """network {net} | method {method} | links {links} | step, ms {step_ms:.2f} | all steps, s {seconds:.1f} |
        slow steps {slow_steps}""", run.records(
        "OMP_NUM_THREADS=1 benchmarks/cluster/run --hosts 2 --rate 10gbit --pin -- @bench_methods --net vgg "
        "--links 10gbit,100mbit,1gbit,10gbit " + size)


@question
def inference(run):
    """How fast is inference?
    One core; a predictor and ONNX Runtime in turns. The times of ONNX Runtime include JavaScript, some 10 us a call."""
    size = run.few("", "TURNS=1 SECONDS_EACH=0.05 ONLY=lenet ")
    return """network {network} | rows {rows} | lockstep, samples/s {lockstep_samples_per_s} |
        ONNX Runtime, samples/s {onnxruntime_samples_per_s} | lockstep / ONNX Runtime {ratio:.2f} |
        error of the largest output {error_of_largest_output:.1e}""", run.records(
        "BUILD={build} CORE={core} " + size + "benchmarks/inference/run")


@question
def checkpoints(run):
    """How fast is a checkpoint written?
    All ranks write one, beside `dd bs=16M conv=fsync` of as many bytes; both wait for the disk. Steps are those of
    784-1024-1024-10 at batch 128: without a checkpoint, with one of the network in 50 steps that the next step waits
    for, and while the whole size is written behind the run (`write_behind`; only steps within the writing count)."""
    found = []
    for ranks in (1, 2):
        cells = {}
        size = run.few(" --mib 4096", " --mib 512 --turns 1 --every 4")
        command = "scripts/mpirun -n {ranks} --bind-to none @bench_checkpoints --folder {build}/checkpoints" + size
        for line in run.records(command, ranks=ranks):
            cells.update(line)
        found += [cells] if cells else []
    return """ranks {ranks} | size, MiB {mib} | written, GB/s {gb_per_s:.2f} | dd, GB/s {dd_gb_per_s:.2f} |
        ratio {ratio:.2f} | read, GB/s {read_gb_per_s:.2f} | step, ms {none_ms:.2f} |
        with a checkpoint, ms {saved_ms:.2f} | steps within the writing {steps} | copy, ms {copy_ms:.0f} |
        step without, ms {without_ms:.2f} | within, ms {meanwhile_ms:.2f} |
        within / without {meanwhile_over_without:.2f}""", found


@question
def accuracy(run):
    """What does a compressor do to the accuracy?
    MNIST, LeNet of examples/train, 4 epochs of batches of 128, 8 workers on 2 ranks, seeds 1 to 3; `FOLDER` has the
    files. Test accuracy in percent: the mean, that of each seed, and how far the mean is from the same optimizer's
    without a compressor."""
    bases = {"momentum": "", "adam": "--optimizer adam --lr 0.001", "slower": "--lr 0.01", "half": "--lr 0.025"}
    ways = [("none", options, base) for base, options in bases.items()] + [(name, "", "momentum") for name in (
        "half", "bfloat16", "half:1", "bfloat16:1", "quantize:8", "quantize:4", "qsgd:7", "terngrad", "onebit", "sign",
        "topk:0.01", "sampledtopk:0.01", "gaussiantopk:0.01", "threshold:0.001,0.1", "sparsesum:0.01,4", "globaltopk:0.01",
        "chain:0.01,4", "bylayer:0.01,8", "warmup:0.001,100", "powersgd:1", "powersgd:2", "powersgd:4", "atomo:3",
        "adaptive")]
    ways += [("none", "--sync delayed", "momentum"), ("none", f"--sync delayed {bases['half']}", "half"),
             ("none", "--sync local:8", "momentum"), ("topk:0.01", "--sync local:8", "momentum"),
             ("quantize:4", "--sync local:8", "momentum"), ("none", "--sync gossip:ring", "momentum"),
             ("quantize:4", "--sync choco:0.4", "momentum"), ("sign", "--sync choco:0.4", "momentum"),
             ("topk:0.05", "--sync choco:0.2", "momentum"), ("topk:0.01", "--sync choco:0.05", "momentum"),
             ("dgc:0.001,188", "", "momentum"),
             ("signvote:1,0.9", "--lr 0.0005 --momentum 0 --weight-decay 0", "momentum"),
             ("onebitadam:380", "--lr 0.001", "adam"), ("onebitadam:940", "--lr 0.001", "adam"),
             ("randomk:0.1", bases["slower"], "slower"), ("randomblock:0.1", bases["slower"], "slower")]
    if not run.given.mnist:
        run.miss("all of it", "no --mnist FOLDER")
        return "", []
    found, without = [], {}
    for method, options, base in run.few(ways, ways[:4]):
        command = "scripts/mpirun -n 2 --bind-to core @train --data {mnist} --workers 8 --batch 128 --quiet --report {file} "
        command += run.few("--epochs 4", "--steps 60") + " --seed {seed} --compress {method}"
        command += f" {options}" if options else ""
        reports = [line for seed in run.few((1, 2, 3), (1,)) for line in run.report(command, method=method, seed=seed)]
        if not reports:
            continue
        reached = [line["epochs"][-1]["test_accuracy"] for line in reports]
        mean = statistics.mean(reached)
        if method == "none" and options == bases[base]:
            without[base] = mean
        found.append({"method": method, "options": options, "mean": mean,
                      "all": ", ".join(f"{100 * one:.2f}" for one in reached),
                      "loss": 100 * (mean - without.get(base, mean))})
    return """method {method} | with {options} | mean, % {mean:.2%} | of each seed, % {all} |
        beside none {loss:+.2f}""", found


@question
def cifar10_accuracy(run):
    """What does a compressor do to ResNet-20 on CIFAR-10?
    3 epochs of batches of 128, 8 workers on 2 ranks, the recipe of examples/cifar10 but for that; `FOLDER` has the
    pictures. Test accuracy in percent of the seeds 1 to 3, and how far their mean is from that without a compressor."""
    ways = [(name, "") for name in (
        "none", "half", "bfloat16", "quantize:8", "quantize:4", "qsgd:7", "terngrad", "onebit", "sign", "topk:0.01",
        "sparsesum:0.01,4", "globaltopk:0.01", "chain:0.01,4", "powersgd:2", "powersgd:4")]
    ways += [("dgc:0.001,391", ""), ("randomblock:0.1", "--lr 0.04")]
    if not run.given.cifar10:
        run.miss("all of it", "no --cifar10 FOLDER")
        return "", []
    found, without = [], None
    for method, options in run.few(ways, ways[:1]):
        command = "scripts/mpirun -n 2 --bind-to core @bench_accuracy --data {cifar10} --seed {seed} --method {method}"
        command += run.few(" --epochs 3", " --epochs 1 --train-samples 1024 --test-samples 256")
        command += f" {options}" if options else ""
        reached = [line["test_accuracy"][-1] for seed in run.few((1, 2, 3), (1,))
                   for line in run.records(command, method=method, seed=seed)]
        if not reached:
            continue
        mean = statistics.mean(reached)
        without = mean if without is None else without
        found.append({"method": method, "options": options, "mean": mean, "loss": mean - without,
                      "all": ", ".join(f"{one:.2f}" for one in reached)})
    return """method {method} | with {options} | mean, % {mean:.2f} | of each seed, % {all} |
        beside none {loss:+.2f}""", found


@question
def cifar10(run):
    """What does ResNet-20 reach on CIFAR-10?
    2 ranks, the recipe of examples/cifar10; `FOLDER` has the pictures."""
    command = "scripts/mpirun -n 2 --bind-to core @cifar10 --data {cifar10} --quiet --report {file}"
    command += run.few("", " --epochs 1 --train-samples 1024 --test-samples 256")
    found = run.report(command) if run.given.cifar10 else run.miss("all of it", "no --cifar10 FOLDER")
    return """epoch {epoch} | time, s {seconds:.1f} | training loss {loss:.3f} | test loss {test_loss:.3f} |
        test accuracy, % {test_accuracy:.2%} | weights at the end {weights_hash}""", [
        {**line, **epoch, "epoch": number} for line in found for number, epoch in enumerate(line["epochs"], 1)]
