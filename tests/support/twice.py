"""A stage of one's own that can be read at a glance, and the pipeline that it alone is."""

STAGE = '''\
"""Its input, twice."""

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T HV")}, outputs={"y": Port("B T HV")}, flops="B * T * HV")


def reference(x):
    return {"y": 2 * x}


def vjp(d_y, *, needs):
    return {"x": 2 * d_y}
'''
PIPELINE = """\
schema: pipeline/v1
name: op
inputs: {x: B T HV}
definition: {step: [y = 2 * x]}
stages: {one: {use: twice, in: {x: x}}}
outputs: {y: one.y}
"""
