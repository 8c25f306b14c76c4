"""The whole op as a CUDA graph: what it costs when the host does nothing but start it."""

from collections.abc import Callable

import torch


def captured(run: Callable[[], object], device: torch.device) -> Callable[[], None]:
    """Replays what a run launches, on the tensors of that run. It ran before: a capture neither compiles nor copies."""
    with torch.cuda.device(device):
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
    return graph.replay
