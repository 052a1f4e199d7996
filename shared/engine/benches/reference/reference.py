"""Times the Python reference implementation on the graphs of `graphs.rs`; prints one JSON object per graph.

`make bench-compare` runs it. The first object names the versions under `reference`. Each other has `name` and
`seconds`, those of the fastest of several calls. Suspension is missing: the reference does not have it.
"""

import asyncio
import importlib.abc
import importlib.machinery
import json
import platform
import re
import sys
import time
from typing import Annotated

STEPS = 1_000
CALLS = 7


class Lowered(importlib.abc.MetaPathFinder):
    """Lets a Python before 3.12 import the package: type parameters (PEP 695) become type variables, in memory.

    Nothing else of the package changes, and nothing that runs in a step.
    """

    HEAD = re.compile(r"^(\s*(?:class|def|async def) \w+)\[([^\]]+)\](\()?", re.MULTILINE)

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("openarmature"):
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found and isinstance(found.loader, importlib.machinery.SourceFileLoader):
            loader = found.loader
            compiled = loader.source_to_code
            loader.get_code = lambda module: compiled(self.lower(loader.get_source(module)), loader.path)
        return found

    def lower(self, source):
        names = set()

        def head(match):
            start, parameters, bases = match.groups()
            own = [parameter.split(":")[0].strip() for parameter in parameters.split(",")]
            names.update(own)
            if "class" not in start:
                return start + (bases or "")
            generic = f"_Generic[{', '.join(own)}]"
            return f"{start}({generic}, " if bases else f"{start}({generic})"

        body = self.HEAD.sub(head, source)
        if not names:
            return source
        variables = "".join(f"; {name} = _TypeVar({name!r})" for name in sorted(names))
        prelude = f"from typing import Generic as _Generic, TypeVar as _TypeVar{variables}\n"
        at = re.search(r"^from __future__ .*\n", body, re.MULTILINE)
        return body[: at.end()] + prelude + body[at.end() :] if at else prelude + body


if sys.version_info < (3, 12):
    sys.meta_path.insert(0, Lowered())

import openarmature  # noqa: E402
from openarmature.graph import END, GraphBuilder, State, append  # noqa: E402


class Number(State):
    n: int = 0


class Outs(State):
    outs: Annotated[list[int], append] = []


async def counting(state):
    return {"n": state.n + 1}


def linear(nodes):
    graph = GraphBuilder(Number).set_entry("n0")
    for index in range(nodes):
        graph.add_node(f"n{index}", counting)
        graph.add_edge(f"n{index}", END if index + 1 == nodes else f"n{index + 1}")
    return graph.compile()


def looping(steps):
    graph = GraphBuilder(Number).set_entry("n").add_node("n", counting)
    return graph.add_conditional_edge("n", lambda state: "n" if state.n < steps else END).compile()


def fan_out(instances):
    graph = GraphBuilder(Outs).set_entry("all")
    graph.add_fan_out_node(
        "all", subgraph=linear(1), collect_field="n", target_field="outs", count=instances
    )
    return graph.add_edge("all", END).compile()


async def main():
    python = f"{platform.python_implementation()} {platform.python_version()}"
    version, specification = openarmature.__version__, openarmature.__spec_version__
    print(json.dumps({"reference": f"openarmature {version} (specification {specification}) on {python}"}))
    for name, graph, state, check in [
        ("linear graph", linear(STEPS), Number, lambda end: end.n),
        ("conditional loop", looping(STEPS), Number, lambda end: end.n),
        ("fan-out", fan_out(STEPS), Outs, lambda end: len(end.outs)),
    ]:
        fastest = float("inf")
        for _ in range(CALLS):
            before = time.perf_counter()
            end = await graph.invoke(state())
            fastest = min(fastest, time.perf_counter() - before)
            assert check(end) == STEPS, (name, end)
        print(json.dumps({"name": name, "seconds": fastest}), flush=True)


asyncio.run(main())
