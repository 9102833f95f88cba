#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""pages.py REPOSITORY FOLDER: copies the pages, and the files that they link to, to FOLDER, and writes index.md with the navigation.

The navigation has what exists: a page of the list below that is not there is left out, one that the list does not name stands below `More`."""
import fnmatch
import re
import shutil
import sys
from pathlib import Path

NAVIGATION = {
    "Start": ["README", "docs/install"],
    "Tutorial": ["docs/tutorial/*"],
    "Guides": ["docs/howto", "docs/control", "docs/reports", "docs/inference", "docs/checkpoints", "docs/compression", "docs/clusters",
               "docs/from-pytorch-ddp", "docs/from-horovod", "docs/troubleshooting"],
    "Concepts": ["docs/concepts", "docs/glossary", "docs/design"],
    "Reference": ["docs/components", "docs/reference", "api", "benchmarks/RESULTS", "benchmarks/README", "docs/names", "CONTRIBUTING"],
}
TITLES = {"README": "Overview <README>"}
OUTSIDE = ["README.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md", "benchmarks/README.md"]
INDEX = """# lockstep

lockstep trains neural networks on CPU clusters over MPI. It is a header-only C++20 library. With data parallelism the weights have the same bits on
any number of ranks.

- New here: [the tutorial](docs/tutorial/01-install.md), ten chapters from the installation to a cluster.
- A task at hand: [how-to recipes](docs/howto.md).
- Coming from [PyTorch DDP](docs/from-pytorch-ddp.md) or [Horovod](docs/from-horovod.md).
- An error text: [troubleshooting](docs/troubleshooting.md).
- Every member: [reference](docs/reference.md), [components](docs/components.md), [API reference](api.md).
"""
API = """# API reference

From the docstrings of the headers, by doxygen:

- <a href="api/index.html">Start page</a>
- <a href="api/annotated.html">All types</a>
- <a href="api/classlockstep_1_1train_1_1trainer.html">trainer</a>
- <a href="api/structlockstep_1_1train_1_1plan.html">plan</a>
"""


def main(repository: Path, folder: Path) -> None:
    found = [Path(name) for name in OUTSIDE if (repository / name).exists()]
    found += sorted(path.relative_to(repository) for path in (repository / "docs").rglob("*.md") if "site" not in path.parts)
    shutil.rmtree(folder, ignore_errors=True)
    for page in found:
        copy(repository, folder, page)
        text = re.sub(r"^```.*?^```", "", (repository / page).read_text(encoding="utf-8"), flags=re.S | re.M)
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
            path = repository / page.parent / target
            if "://" not in target and path.is_file() and path.suffix != ".md":
                copy(repository, folder, path.resolve().relative_to(repository.resolve()))
    names = [str(page.with_suffix("")) for page in found] + ["api"]
    index, left = INDEX, [name for name in names]
    for title, patterns in list(NAVIGATION.items()) + [("More", ["*"])]:
        here = [name for pattern in patterns for name in sorted(left) if fnmatch.fnmatchcase(name, pattern)]
        left = [name for name in left if name not in here]
        if here:
            index += f"\n```{{toctree}}\n:caption: {title}\n:maxdepth: 1\n:hidden:\n\n" + "\n".join(TITLES.get(name, name) for name in here) + "\n```\n"
    (folder / "index.md").write_text(index, encoding="utf-8")
    (folder / "api.md").write_text(API, encoding="utf-8")


def copy(repository: Path, folder: Path, path: Path) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(repository / path, folder / path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
