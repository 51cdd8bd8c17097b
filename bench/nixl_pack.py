#!/usr/bin/env python3
"""NIXL from PyPI for a machine that can fetch nothing: the wheel without what UCX over tcp and cuda_copy does not need.

  nixl_pack.py OUT.tar.gz [--version 1.5.1] [--python 3.12]

--python: the version there. What is kept: the bindings, libnixl, the UCX plugin, UCX's CUDA modules, and what those name
as needed. Unpacked, it is a folder for PYTHONPATH; NumPy has to be there.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOTS = ("nixl_cu13/*.so", ".nixl_cu13.mesonpy.libs/plugins/libplugin_UCX.so", "nixl_cu13.libs/ucx/libuct_cuda.so*",
         "nixl_cu13.libs/ucx/libucm_cuda.so*", ".nixl_cu13.mesonpy.libs/libnixl_capi.so")
TEXTS = ("nixl", "nixl_cu13", "nixl-*.dist-info", "nixl_cu13-*.dist-info", "nixl_meta_utils.py")


def fetch(arguments, folder):
    for package, more in (("nixl-cu13", ["--python-version", arguments.python, "--implementation", "cp", "--platform",
                                         "manylinux_2_28_x86_64"]), ("nixl", [])):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "--only-binary", ":all:", "-d", str(folder), *more, f"{package}=={arguments.version}"], check=True)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder / "all")


def needed(library):
    text = subprocess.run(["readelf", "-d", str(library)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.partition("[")[2].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line]


def closure(whole):
    """The libraries that those of ROOTS need, themselves included; what is not in the wheel is the system's."""
    by_name = {}
    for path in whole.rglob("*.so*"):
        by_name.setdefault(path.name, []).append(path)
    keep, todo = set(), [path for pattern in ROOTS for path in whole.glob(pattern)]
    if len(todo) < len(ROOTS):
        sys.exit(f"nixl_pack.py: this wheel is laid out otherwise: only {[str(path) for path in todo]}")
    while todo:
        path = todo.pop()
        if path not in keep:
            keep.add(path)
            todo += [other for name in needed(path) for other in by_name.get(name, [])]
    return keep


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--version", default="1.5.1")
    parser.add_argument("--python", default="3.12")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        fetch(arguments, folder)
        whole, kept = folder / "all", folder / "nixl"
        libraries = closure(whole)
        texts = {path for pattern in TEXTS for place in whole.glob(pattern)
                 for path in (place.rglob("*") if place.is_dir() else [place]) if path.is_file() and ".so" not in path.name}
        for path in libraries | texts:
            to = kept / path.relative_to(whole)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)
            if path in libraries:
                subprocess.run(["strip", "--strip-debug", str(to)], check=False, stderr=subprocess.DEVNULL)
        with tarfile.open(arguments.out, "w:gz") as packed:
            packed.add(kept, arcname="nixl")
    print(f"{arguments.out}: {pathlib.Path(arguments.out).stat().st_size >> 20} MiB, {len(libraries)} libraries")


if __name__ == "__main__":
    sys.exit(main())
