"""Kernels in Triton's interpreter, in processes of their own: tests/test_interpreted.py starts them."""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]
else:
    from support.interpreter import patch_once_a_launch

    patch_once_a_launch()
