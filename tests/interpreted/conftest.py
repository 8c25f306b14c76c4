"""Kernels in Triton's interpreter, in processes of their own: tests/test_interpreted.py starts them."""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]
