#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Steps of PyTorch's DistributedDataParallel over gloo with the networks of bench_methods: as it is, with the fp16 hook,
and with the PowerSGD hook. Prints the same JSON lines.

  benchmarks/cluster/run --hosts 2 --rate 100mbit --pin -- python3 benchmarks/methods/ddp_peer.py [--net vgg]
"""
import argparse
import json
import os
import statistics
import sys
import time

MODES = ("ddp", "ddp fp16", "ddp powersgd")


def network(name, nn):
    """The network, the shape of a sample, and the number of classes."""
    if name == "lenet":
        layers = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                  nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                  nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
        return nn.Sequential(*layers), (1, 28, 28), 10
    if name == "vgg":
        layers, channels = [], 3
        for width in (32, 64, 128):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(),
                       nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        layers += [nn.Flatten(), nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 10)]
        return nn.Sequential(*layers), (3, 32, 32), 10
    sizes = [429] + 7 * [2048]
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers, nn.Linear(2048, 9304)), (429,), 9304


def step_ms(mode, args, ranks):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.manual_seed(1)
    net, shape, classes = network(args.net, torch.nn)
    batch = args.batch // ranks
    x = torch.rand(batch, *shape) - 0.5
    if len(shape) == 3:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    y = torch.arange(batch) % classes
    bucket_mb = 25
    if mode == "ddp powersgd":  # one bucket: with several its hook waits for itself
        bucket_mb = 1 << 14
        dist._DEFAULT_FIRST_BUCKET_BYTES = bucket_mb << 20
    net = DistributedDataParallel(net, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    if mode == "ddp fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        net.register_comm_hook(None, fp16_compress_hook)
    elif mode == "ddp powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
        net.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook)
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(x), y).backward()
        optimizer.step()
        return time.perf_counter() - begin

    for _ in range(4):
        step()
    once = torch.tensor(step(), dtype=torch.float64)
    dist.broadcast(once, 0)
    times = [step() for _ in range(min(400, max(3, int(args.seconds / once.item()))))]
    out = torch.tensor(1e3 * statistics.median(times[len(times) // 3 * 2:]), dtype=torch.float64)
    dist.all_reduce(out, dist.ReduceOp.MAX)
    return out.item()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--net", choices=("lenet", "vgg", "cd_dnn"), default="lenet")
    p.add_argument("--batch", type=int, default=64, help="of all ranks")
    p.add_argument("--seconds", type=float, default=2, help="of each way in a turn, about")
    p.add_argument("--turns", type=int, default=3)
    args = p.parse_args()
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ.update(MASTER_ADDR="node0", MASTER_PORT="29511", GLOO_SOCKET_IFNAME="eth0")

    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    found = {mode: [] for mode in MODES}
    for turn in range(args.turns):
        for at in range(len(MODES)):
            mode = MODES[(at + turn) % len(MODES)]
            found[mode].append(step_ms(mode, args, ranks))
    if rank == 0:
        for mode, times in found.items():
            print(json.dumps({"net": args.net, "ranks": ranks, "batch": args.batch, "method": mode,
                              "step_ms": round(statistics.median(times), 3)}))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # tearing down gloo in order sometimes hangs


main()
