"""A barrier of the warps of a program, or of one group of them."""

from triton.experimental.gluon import language as gl

barrier = getattr(gl, "barrier", None) or gl.thread_barrier
"""Triton 3.7 renamed it."""
