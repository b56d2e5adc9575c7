"""torch's compiler is not loaded by training, and is all there for who compiles."""

import subprocess
import sys

SCRIPT = """
import inspect, sys
from nfold.runtime.data.torch_compiler import leave_compiler_out
leave_compiler_out()

import torch
from torch import nn
from nfold.capture import capture_program, program_facts
from nfold.program import Program

data = [(torch.full((4,), float(index)), index % 2) for index in range(20)]
program = Program(
    model=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.Adam(parameters), train_data=lambda: data, batch_size=4,
)
model = program.model()
program_facts._of_samples = lambda *given: ("", (), "")  # only the rank that proves loads torch's tracer
assert capture_program(model, program, data).graph.capture == "fx"
optimizer = program.optimizer(model.parameters())
torch.autograd.backward([model(torch.ones(2, 4))], [torch.ones(2, 2)])
optimizer.step()
before = optimizer.state_dict()
inspect.getmodule(inspect.currentframe())
assert {"sympy", "torch._dynamo.symbolic_convert"}.isdisjoint(sys.modules), "nothing was compiled"

try:
    torch.autograd.backward([model(torch.ones(2, 4))], [torch.ones(2, 3)])
except RuntimeError as error:
    assert "Mismatch in shape" in str(error)
else:
    raise AssertionError("a gradient of another shape was taken")

graphs = []

def keep(graph, inputs):
    graphs.append(graph)
    return graph.forward

@torch.compile(backend=keep)
def compiled(value):
    optimizer.zero_grad()
    torch._dynamo.graph_break()
    return model(value) + torch.sin(value[:, :2])

value = torch.ones(3, 4)
torch.testing.assert_close(compiled(value), model(value) + torch.sin(value[:, :2]))
assert graphs, "it was compiled"
assert torch._dynamo.disable.__module__ == "torch._dynamo.decorators"
optimizer.load_state_dict(before)
"""


def test_training_does_not_load_the_compiler_and_compiling_does():
    end = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100)

    assert end.returncode == 0, end.stderr
