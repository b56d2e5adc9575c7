"""Real job systems on this machine, started once for all tests of a session; skipped where one is not to be had."""

import os
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
import slurm_cluster
import yarn_cluster


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A Slurm of three nodes."""
    if why := slurm_cluster.why_not():
        pytest.skip(f"no Slurm can be started here: {why}")
    cluster = slurm_cluster.SlurmCluster(tmp_path_factory.mktemp("slurm"), 3)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def yarn_nodes(tmp_path_factory):
    """A YARN of two nodes."""
    if reason := yarn_cluster.missing():
        pytest.skip(f"there is no YARN here: {reason}")
    with yarn_cluster.YarnRig(tmp_path_factory.mktemp("yarn"), num_nodes=2) as rig:
        yield rig


@dataclass
class RayNodes:
    """A Ray that runs."""

    ray: Any
    """The module; this process has not joined."""
    address: str

    def left(self):
        """Return what Ray still holds for somebody."""
        self.ray.init(address=self.address, log_to_driver=False, configure_logging=False)
        try:
            groups = self.ray.util.placement_group_table().values()
            there, free = self.ray.cluster_resources(), self.ray.available_resources()
            held = [f"{name} in use" for name in ("CPU",) if free.get(name, 0.0) < there[name]]
            return [f"group {group['state']}" for group in groups if group["state"] != "REMOVED"] + held
        finally:
            self.ray.shutdown()


@pytest.fixture(scope="session")
def ray_nodes():
    """A Ray of three nodes."""
    module = pytest.importorskip("ray", reason="Ray is not installed: pip install 'nfold[ray]'")
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_TMPDIR", f"/tmp/nfr-{uuid.uuid4().hex[:6]}")  # paths of sockets must be short
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=2)
        yield RayNodes(module, nodes.address)
    finally:
        module.shutdown()
        nodes.shutdown()
