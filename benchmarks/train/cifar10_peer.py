#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The recipe of examples/cifar10 in PyTorch: what accuracy the same network reaches on the same pictures.

ResNet-20 from the peers' programs, Nesterov's momentum, weight decay on weights alone, one cycle of the rate, shifts and flips;
normalisation over the whole minibatch, weights and order from PyTorch's own random numbers. Prints a JSON line for each epoch.

  cifar10_peer.py PEERS FOLDER      PEERS holds torch_common.py, FOLDER data_batch_1.bin .. data_batch_5.bin and test_batch.bin
"""
import argparse
import json
import os
import sys
import time


def read(path):
    import torch
    with open(path, "rb") as f:
        records = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).view(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def rate_at(step, total, args):
    """As optim::one_cycle: a straight line from peak / 25, a straight line to 0."""
    top = args.rise * total
    if step < top:
        return args.peak * (1 / 25 + (1 - 1 / 25) * step / top)
    return args.peak * (1 - (step - top) / (total - top))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("peers")
    p.add_argument("folder")
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--peak", type=float, default=0.2)
    p.add_argument("--rise", type=float, default=0.2)
    p.add_argument("--decay", type=float, default=5e-4)
    p.add_argument("--shift", type=int, default=4)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    sys.path.insert(0, args.peers)
    import torch
    import torch_common as common
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)

    parts = [read(os.path.join(args.folder, f"data_batch_{i}.bin")) for i in range(1, 6)]
    train, labels = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    test, answers = read(os.path.join(args.folder, "test_batch.bin"))
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
    deviation = torch.tensor([0.2470, 0.2435, 0.2616]).view(1, 3, 1, 1)

    def numbers(pictures):
        return (pictures.float() / 255 - mean) / deviation

    def augmented(pictures):
        s, n = args.shift, len(pictures)
        padded = torch.nn.functional.pad(pictures, (s, s, s, s))
        rows, columns = (torch.randint(2 * s + 1, (n, 1)) + torch.arange(32) for _ in range(2))
        mirrored = torch.rand(n, 1) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
        every, channels = torch.arange(n).view(n, 1, 1, 1), torch.arange(3).view(1, 3, 1, 1)
        return padded[every, channels, rows.view(n, 1, 32, 1), columns.view(n, 1, 1, 32)]

    net, _, _, _ = common.build("resnet-20", args.batch, True)
    torch.manual_seed(args.seed)
    for part in net.modules():
        if isinstance(part, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    weights = [q for q in net.parameters() if q.dim() > 1]
    others = [q for q in net.parameters() if q.dim() == 1]
    optimizer = torch.optim.SGD([{"params": weights, "weight_decay": args.decay}, {"params": others, "weight_decay": 0}],
                                lr=args.peak, momentum=0.9, nesterov=True)
    loss_of = torch.nn.CrossEntropyLoss()
    total, step = args.epochs * ((len(train) + args.batch - 1) // args.batch), 0
    for epoch in range(1, args.epochs + 1):
        net.train()
        begin, sums = time.perf_counter(), 0.0
        for rows in torch.randperm(len(train)).split(args.batch):
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, total, args)
            x = augmented(numbers(train[rows])).contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(net(x), labels[rows])
            loss.backward()
            optimizer.step()
            sums += loss.item() * len(rows)
            step += 1
        seconds = time.perf_counter() - begin
        net.eval()
        right = 0
        with torch.no_grad():
            for rows in torch.arange(len(test)).split(500):
                right += (net(numbers(test[rows])).argmax(1) == answers[rows]).sum().item()
        print(json.dumps({"epoch": epoch, "loss": sums / len(train), "test_accuracy": right / len(test), "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
