"""A real Hadoop YARN on this machine: ZooKeeper, a ResourceManager with its Services, and nodes at addresses 127.x.y.z.

Nothing is installed and nobody need be root. The jars: `mvn -f yarn_pom.xml dependency:copy-dependencies
-DincludeScope=runtime -DoutputDirectory=FOLDER`, and NFOLD_YARN_JARS=FOLDER. Java 17.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import urllib.request
from pathlib import Path

START_S = 100.0
_SCHEDULER = {
    "root.queues": "default,small",
    "root.default.capacity": "75",
    "root.small.capacity": "25",
    "maximum-am-resource-percent": "0.5",
}
_ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
_SERVER = "org.apache.hadoop.yarn.server"
_OPENED = ("java.lang", "java.util", "java.io", "java.net")


def jars():
    """Return the folder with Hadoop's jars; None: there is none."""
    beside = Path(__file__).parents[3] / "shared" / "yarn" / "jars"
    folder = Path(os.environ.get("NFOLD_YARN_JARS", beside))
    return folder if any(folder.glob("hadoop-yarn-services-core-*.jar")) else None


def missing():
    """Return what this machine lacks for a YARN; empty: nothing."""
    if jars() is None:
        return "no jars in NFOLD_YARN_JARS or ../shared/yarn/jars"
    if shutil.which("java") is None:
        return "no java (openjdk-17-jre-headless)"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    return "" if 'version "17' in said else f"Hadoop 3.4 runs on Java 17, and this is {said.splitlines()[0]}"


class YarnRig:
    """Runs from `__enter__` to `__exit__`, which ends all that was started, containers too."""

    def __init__(self, folder, num_nodes, networks=None):
        """Args:
        folder: for all its files.
        num_nodes: each with a NodeManager.
        networks: to put nodes into, with host names of their own; else all are on loopback.
        """
        self.folder = folder
        self.services = folder / "services"
        self.num_nodes = num_nodes
        self._networks = networks
        self._address = networks.address if networks else "127.0.0.1"
        self._net = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"
        self._processes = []

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
            process.wait()
        for pid in self.containers():  # they outlive their nodes
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def containers(self):
        """Return the processes that work in containers of this cluster."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(self.folder / "nodes"):
                    found.append(int(entry.name))
        return found

    def _start(self):
        manager, keeper = _free_port(), _free_port()
        self.base = f"http://{self._address}:{manager}"
        self._configure(manager, keeper)
        self._framework()
        self._java("zookeeper", _ZOOKEEPER, str(keeper), str(self.folder / "zookeeper"))
        self._java("manager", f"{_SERVER}.resourcemanager.ResourceManager")
        for node in range(1, self.num_nodes + 1):
            where = self.folder / "nodes" / str(node)
            self._java(
                f"node{node}",
                f"{_SERVER}.nodemanager.NodeManager",
                f"-Dyarn.nodemanager.hostname={self._address_of(node)}",
                f"-Dyarn.nodemanager.local-dirs={where / 'local'}",
                f"-Dyarn.nodemanager.log-dirs={where / 'logs'}",
                inside=self._networks.inside(node - 1, f"node{node - 1}") if self._networks else (),
            )
        self._wait()

    def _configure(self, manager, keeper):
        conf = self.folder / "conf"
        conf.mkdir()
        self.services.mkdir()
        sites = {
            "core-site": {
                "fs.defaultFS": "file:///",
                "hadoop.tmp.dir": self.folder / "tmp",
                "hadoop.registry.zk.quorum": f"{self._address}:{keeper}",
            },
            "yarn-site": {
                "yarn.resourcemanager.hostname": self._address,
                "yarn.resourcemanager.webapp.address": f"{self._address}:{manager}",
                **{
                    f"yarn.resourcemanager.{each}.address": f"{self._address}:{_free_port()}"
                    for each in ("scheduler", "resource-tracker", "admin")
                },
                "yarn.resourcemanager.address": f"{self._address}:{_free_port()}",
                "yarn.webapp.api-service.enable": "true",
                "yarn.resourcemanager.placement-constraints.handler": "scheduler",
                "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
                "yarn.scheduler.minimum-allocation-mb": "128",
                "yarn.nodemanager.resource.memory-mb": "2048",
                "yarn.nodemanager.resource.cpu-vcores": "4",
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.pmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.enable": "false",
                "yarn.nodemanager.env-whitelist": "JAVA_HOME,JDK_JAVA_OPTIONS,HADOOP_CONF_DIR",
                "yarn.service.framework.path": self.folder / "framework.tar.gz",
                "yarn.service.base.path": self.services.as_uri(),
            },
            "capacity-scheduler": {f"yarn.scheduler.capacity.{key}": value for key, value in _SCHEDULER.items()},
        }
        for name, settings in sites.items():
            lines = [
                f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()
            ]
            (conf / f"{name}.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
        # Nobody need know this machine's name, and on loopback a node is called by its address.
        numbers = range(1, self.num_nodes + 1) if self._networks else ()
        named = [f"{self._address_of(node)} node{node - 1}\n" for node in numbers]
        (conf / "hosts").write_text("".join([f"{self._address} {socket.gethostname()}\n", *named]))

    def _framework(self):
        """Pack what YARN gives each service's master."""
        with tarfile.open(self.folder / "framework.tar.gz", "w:gz", compresslevel=0) as archive:
            for jar in sorted(jars().glob("*.jar")):
                archive.add(jar, jar.name)

    def _address_of(self, node):
        return self._networks.address_of(node - 1) if self._networks else f"{self._net}.{node}"

    def _java(self, name, *command, inside=()):
        options = [
            f"-Djdk.net.hosts.file={self.folder}/conf/hosts",
            "-Xmx300m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        ]
        environment = {
            **os.environ,
            "JDK_JAVA_OPTIONS": " ".join(options),
            "JAVA_HOME": str(Path(shutil.which("java")).resolve().parents[1]),
            "HADOOP_CONF_DIR": f"{self.folder}/conf",
            "CLASSPATH": f"{self.folder}/conf:{jars()}/*",
        }
        with open(self.folder / f"{name}.log", "wb") as log:
            started = subprocess.Popen(
                [*(inside or ["setpriv", "--pdeathsig", "TERM"]), "java", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(started)

    def _wait(self):
        """Return once all nodes take containers."""
        pause = threading.Event()
        for _ in range(int(START_S / 0.2)):
            if self._num_active() == self.num_nodes:
                return
            pause.wait(0.2)
        raise TimeoutError(f"YARN is not there after {START_S:g} s: see {self.folder}/*.log")

    def _num_active(self):
        try:
            with urllib.request.urlopen(f"{self.base}/ws/v1/cluster/metrics", timeout=5) as answer:
                return json.load(answer)["clusterMetrics"]["activeNodes"]
        except OSError:
            return 0


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
