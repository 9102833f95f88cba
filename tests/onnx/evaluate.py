# SPDX-License-Identifier: BSD-3-Clause
"""Checks ONNX files with the checker of ONNX, runs them operation by operation in double, and compares.

usage: evaluate.py FOLDER TOLERANCE    (NAME.onnx, NAME.x and NAME.y, from tests/onnx/cases.cpp)

TOLERANCE is that of networks of floats; those of doubles have 1e-12.
"""
import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper


def windows(x, kernel, strides, pads, dilations, fill):
    """Places x kernel positions: a list of arrays batch x channels x rows x columns, one for each position."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=fill)
    count = [(x.shape[2 + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in (0, 1)]
    return [x[:, :, i * dilations[0]:, j * dilations[1]:][:, :, ::strides[0], ::strides[1]][:, :, :count[0], :count[1]]
            for i in range(kernel[0]) for j in range(kernel[1])]


def conv(a, x, w, b=None):
    groups = a["group"]
    parts = windows(x, a["kernel_shape"], a["strides"], a["pads"], a["dilations"], 0)
    filters, channels = w.shape[0] // groups, w.shape[1]
    w = w.reshape(w.shape[0], channels, -1)
    out = [sum(np.einsum("nchw,fc->nfhw", part[:, g * channels:(g + 1) * channels],
                         w[g * filters:(g + 1) * filters, :, k]) for k, part in enumerate(parts)) for g in range(groups)]
    out = np.concatenate(out, axis=1)
    return out if b is None else out + b[:, None, None]


def pool(a, x, how, fill):
    return how(np.stack(windows(x, a["kernel_shape"], a["strides"], a.get("pads", [0] * 4), [1, 1], fill)), axis=0)


def batch_norm(a, x, scale, shift, mean, variance):
    turn = lambda v: v.reshape((1, -1) + (1,) * (x.ndim - 2))
    return (x - turn(mean)) / np.sqrt(turn(variance) + a["epsilon"]) * turn(scale) + turn(shift)


def layer_norm(a, x, scale, shift):
    axes = tuple(range(a["axis"], x.ndim))
    if a.get("stash_type", 1) == 1:  # the moments are those of floats, whatever x is
        x = x.astype(np.float32)
    mean = x.mean(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + a["epsilon"]) * scale + shift


def response_norm(a, x):
    half = (a["size"] - 1) // 2
    sums = np.stack([(x[:, max(0, c - half):c + a["size"] - half] ** 2).sum(axis=1) for c in range(x.shape[1])], axis=1)
    return x / (a["bias"] + a["alpha"] / a["size"] * sums) ** a["beta"]


def reshape(a, x, extents):
    return x.reshape([x.shape[i] if e == 0 else int(e) for i, e in enumerate(extents)])


def pad(a, x, pads):
    pads = pads.astype(int)
    return np.pad(x, list(zip(pads[:x.ndim], pads[x.ndim:])))


def cut(a, x, starts, ends, axes, steps):
    place = [slice(None)] * x.ndim
    for start, end, axis, step in zip(*(v.astype(int) for v in (starts, ends, axes, steps))):
        place[axis] = slice(start, end, step)
    return x[tuple(place)]


OPERATIONS = {
    "Add": lambda a, x, y: x + y, "Sub": lambda a, x, y: x - y, "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y, "Sqrt": lambda a, x: np.sqrt(x), "Identity": lambda a, x: x,
    "ReduceMean": lambda a, x: x.mean(axis=tuple(a["axes"]), keepdims=bool(a["keepdims"])),
    "Relu": lambda a, x: np.maximum(x, 0), "Tanh": lambda a, x: np.tanh(x), "Sigmoid": lambda a, x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda a, x: np.log1p(np.exp(x)), "Gemm": lambda a, x, w, b: x @ w + b, "Conv": conv,
    "MaxPool": lambda a, x: pool(a, x, np.max, -math.inf), "AveragePool": lambda a, x: pool(a, x, np.mean, math.nan),
    "GlobalAveragePool": lambda a, x: x.mean(axis=(2, 3), keepdims=True), "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm, "LRN": response_norm, "Reshape": reshape, "Pad": pad, "Slice": cut,
    "Flatten": lambda a, x: x.reshape(x.shape[0], -1), "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Concat": lambda a, *x: np.concatenate(x, axis=a["axis"]),
}


def main(folder, tolerance):
    files = sorted(pathlib.Path(folder).glob("*.onnx"))
    if not files:
        sys.exit(f"{folder}: no ONNX files")
    failed = False
    for file in files:
        model = onnx.load(str(file))
        onnx.checker.check_model(model, full_check=True)
        graph = model.graph
        extents = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim][1:]
        values = {one.name: numpy_helper.to_array(one).astype(np.float64) for one in graph.initializer}
        wide = graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
        read = lambda suffix: np.fromfile(file.with_suffix(suffix), np.float64 if wide else np.float32).astype(np.float64)
        values[graph.input[0].name] = read(".x").reshape([-1] + extents)
        for node in graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            values[node.output[0]] = OPERATIONS[node.op_type](attributes, *(values[name] for name in node.input))
        y = values[graph.output[0].name]
        if list(y.shape[1:]) != [d.dim_value for d in graph.output[0].type.tensor_type.shape.dim][1:]:
            sys.exit(f"{file.name}: the output has the shape {y.shape}")
        expected = read(".y")
        error = np.abs(y.ravel() - expected).max() / np.abs(expected).max()
        print(f"{file.stem}: checked; error {error:.1e} of the largest output")
        failed = failed or not error <= (1e-12 if wide else tolerance)
    if failed:
        sys.exit(f"an error is above {tolerance}, of doubles above 1e-12")


main(sys.argv[1], float(sys.argv[2]))
