"""The backend itself: created by name, its parameters and memory types, what it does with bad ones."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

from harness import Skip, _bindings, case, refusal, require


def one_transfer(initiator, target, size=200_000, seed=1):
    there, here = target.alloc("t", size), initiator.alloc("t", size)
    initiator.load(target.metadata())
    initiator.fill("t", seed)
    initiator.move("WRITE", [(here, size)], [(there, size)], "target", b"done")
    target.check("t", seed)
    target.expect("initiator", b"done")
    initiator.poison("t")
    initiator.move("READ", [(here, size)], [(there, size)], "target")
    initiator.check("t", seed)


@case(core=True)
def created_without_parameters(test, place):
    """By its name, nothing else. The net path is then chosen by the environment."""
    if test.ours and test.setup.path == "net":
        variables = {"TCPX_NET_PLUGIN": test.setup.net_plugin, "TCPX_REQUIRE_PATH": "net"}
        os.environ.update(variables)
        if place == "two processes":
            test.spare[0].environment(variables)
    target = test.peer() if place == "two processes" else test.here()
    target.start_plain("target")
    initiator = test.here()
    initiator.start_plain("initiator")
    one_transfer(initiator, target)


@case(places=(), ucx="it has other parameters")
def parameters_are_those_of_the_option_table(test):
    agent = test.here("agent")
    params = agent.plugin_params()
    for name in ("lanes", "interfaces", "chunk_bytes", "deadline", "require_path", "auth_key_file"):
        require(name in params, f"{name} is not listed: {sorted(params)}")
    tcpx = os.environ.get("TCPX_TEST_CLI")
    if tcpx and os.path.exists(tcpx):
        table = json.loads(subprocess.run([tcpx, "config", "--json"], timeout=20, check=True,
                                          stdout=subprocess.PIPE).stdout)["options"]
        # Who an engine is comes from the agent, so `name` is not for users to choose.
        missing = {row["name"] for row in table} - set(params) - {"name"}
        require(not missing, f"options that are not listed: {missing}")


@case(core=True, places=(), ucx="it lists VRAM everywhere")
def memory_types(test):
    """GPU memory where the process was given a GPU; where it uses CUDA: cuda_test."""
    agent = test.here("agent")
    plugin, backend = agent.mem_types()
    require(plugin == backend, f"{plugin} and {backend}")
    expected = ["DRAM", "VRAM"] if os.access("/dev/nvidiactl", os.R_OK | os.W_OK) else ["DRAM"]
    require([kind.removesuffix("_SEG") for kind in plugin] == expected, f"advertised: {plugin}")
    require(not agent.uses_cuda(), "a driver was loaded")


@case(places=(), ucx="it has other parameters")
def listed_parameters_can_be_given_back(test):
    """As C++ users do: all that the plugin lists, as it lists it."""
    probe = test.here("probe")
    params = {**probe.plugin_params(), **test.params()}
    target, initiator = test.here("target", params=params), test.here("initiator", params=params)
    one_transfer(initiator, target)


@case(core=True, places=(), ucx="it has other parameters")
def unknown_parameters_are_ignored_but_reported(test):
    """Other programs pass things that are meant for other backends."""
    with captured_stderr() as log:
        params = test.params(engine_config="MAX_RMA_RAILS=1", num_workers="4", no_such_thing="1")
        target, initiator = test.here("target", params=params), test.here("initiator", params=params)
        one_transfer(initiator, target)
        text = log()
    for name in ("engine_config", "no_such_thing"):
        require(name in text, f"nothing in the log about {name}: {text[-500:]}")


@case(places=(), ucx="it has other parameters")
def bad_values_are_refused(test):
    for name, value in (("lanes", "many"), ("chunk_bytes", "4Q"), ("deadline", "5"), ("require_path", "rdma"),
                        ("auth_key_file", "/nonexistent/key")):
        with captured_stderr() as log:
            agent = test.here()
            wrong = refusal(lambda: agent.start("agent", test.params(**{name: value})))
            text = log()
        require(wrong == "Backend", f"{name}={value}: {wrong}")
        require(name in text, f"the log does not name {name}: {text[-500:]}")


@case(places=("two processes",), ucx="it has other parameters")
def parameters_take_effect(test, place):
    """Unusual ones, on both sides and on one."""
    odd = test.params(lanes="3", chunk_bytes="8K", window="4", io_threads="2", spin="0us")
    target = test.target(place, params=test.params(chunk_bytes="64K"))
    initiator = test.here("initiator", params=odd)
    one_transfer(initiator, target, 3_000_001)


@case(places=(), peers=2, ucx="it has one path")
def required_path_is_an_error_elsewhere(test):
    """What cannot go by the required path does not silently go by another, whichever end requires it."""
    plugin = test.setup.net_plugin
    if not plugin:
        raise Skip("needs --net-plugin")
    os.environ["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] = "lo"
    size, tcp, net = 5000, {"allow_path": "tcp"}, {"require_path": "net", "net_plugin": plugin}
    for index, (ours, theirs) in enumerate(((net, tcp), (tcp, net))):
        with captured_stderr() as log:
            target = test.peer()
            target.environment({"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "lo"})
            target.start("target", theirs)
            there = target.alloc("b", size)
            initiator = test.here(f"initiator {index}", params=ours)
            here = initiator.alloc("b", size)
            initiator.load(target.metadata())
            initiator.fill("b", 1)
            for op in ("WRITE", "READ"):
                # Refused when it is made or when it has waited for the connection.
                state = initiator.state_of(lambda op=op: initiator.run(initiator.request(
                    op, [(here, size)], [(there, size)], "target", b"no")))
                require(state == "NotSupported", f"{op}, {ours} to {theirs}: ended with {state}")
            text = log()
        target.check_poison("b")
        target.expect_none()
        initiator.check("b", 1)
        require("path unavailable" in text, f"the log does not say why: {text[-500:]}")


@case(places=("two processes",), peers=2, ucx="it has no authentication")
def key_file(test, place):
    """With a shared key the metadata carries no secret; one with another key is not served."""
    with tempfile.NamedTemporaryFile("w", suffix=".key") as key, \
         tempfile.NamedTemporaryFile("w", suffix=".key") as other:
        secret = "the one 0123456789"
        for file, text in ((key, secret), (other, "another 9876543210")):
            file.write(text)
            file.flush()
        target = test.target(place, params=test.params(auth_key_file=key.name))
        initiator = test.here("initiator", params=test.params(auth_key_file=key.name))
        one_transfer(initiator, target)
        require(secret.encode() not in target.metadata(), "the key is in the metadata")
        stranger = test.here("stranger", params=test.params(auth_key_file=other.name, deadline="3s"))
        here, there = stranger.alloc("b", 5000), target.alloc("b", 5000)
        blob = target.metadata()
        try:
            stranger.load(blob)
            request = stranger.request("WRITE", [(here, 5000)], [(there, 5000)], "target")
            require(stranger.run(request, within=10) != "DONE", "a stranger was served")
        except Exception as error:
            require("nixl" in type(error).__name__, f"{error!r}")  # refused when loading is as good
        target.check_poison("b")
        one_transfer(initiator, target, seed=2)


@case(places=(), ucx="it has one path")
def path_is_chosen_per_peer(test):
    """net where both ends have the plugin, tcp otherwise; one agent has peers of both kinds."""
    plugin = test.setup.net_plugin
    if not plugin:
        raise Skip("needs --net-plugin")
    os.environ["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] = "lo"
    with captured_stderr() as log:
        initiator = test.here("initiator", params={"net_plugin": plugin})
        here = initiator.alloc("b", 100_000)
        initiator.fill("b", 1)
        for name, params in (("with", {"net_plugin": plugin}), ("without", {"allow_path": "tcp"})):
            target = test.here(name, params=params)
            there = target.alloc("b", 100_000)
            initiator.load(target.metadata())
            initiator.move("WRITE", [(here, 100_000)], [(there, 100_000)], name)
            target.check("b", 1)
        text = log()
    for name, path in (("with", "net"), ("without", "tcp")):
        require(re.search(f'"{name}" .connected.: path {path}', text), f"{name}: not {path}: {text[-800:]}")


@case(places=(), ucx="it has no receipts")
def receipt_is_in_the_log(test):
    """At debug level every transfer leaves one line that says how it went, and by which path."""
    with captured_stderr() as log:
        target = test.here("target")
        initiator = test.here("initiator", params=test.params(log_level="debug"))
        one_transfer(initiator, target, 77_777)
        text = log()
    receipts = [json.loads(found) for found in re.findall(r'(\{"result".*\})', text)]
    require([(r["op"], r["bytes"], r["path"], r["result"]) for r in receipts] ==
            [(op, 77_777, test.setup.path, "ok") for op in ("write", "read")], f"receipts: {receipts}")


@case(core=True, places=(), ucx="this is about TCPX beside it")
def beside_ucx_in_one_agent(test):
    """A folder with the plugins of NIXL and ours: both are created, and the one that is named is used."""
    os.environ["UCX_TLS"] = "tcp"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NIXL_PLUGIN_DIR"] = str(mirrored_plugins(pathlib.Path(folder)))
        target, initiator = test.here("target"), test.here("initiator")
        for side in (target, initiator):
            side.agent.create_backend("UCX")
            side.alloc("b", 50_000)
        initiator.load(target.metadata())
        for seed, backend in enumerate(("TCPX", "UCX", "TCPX")):
            initiator.backend = backend
            initiator.fill("b", seed)
            request = initiator.request("WRITE", [(initiator.address("b"), 50_000)],
                                        [(target.address("b"), 50_000)], "target", backend.encode())
            require(initiator.agent.query_xfer_backend(initiator.requests[request]) == backend, "as named")
            initiator.done(request)
            target.expect("initiator", backend.encode())
            target.check("b", seed)
            initiator.release(request)
        for side in (initiator, target):
            side.close()
            test.sides.remove(side)


def mirrored_plugins(folder):
    """NIXL's libraries and plugins as links, ours beside them. Plugins look for libraries relative to
    where they (that is, the links) are, so the tree around them is mirrored too."""
    wheel = pathlib.Path(_bindings.__file__).parent
    libraries = wheel.parent / f".{wheel.name}.mesonpy.libs"
    mirror = folder / libraries.name
    (mirror / "plugins").mkdir(parents=True)
    for source in (*libraries.glob("*.so*"), libraries / "plugins" / "libplugin_UCX.so"):
        (mirror / source.relative_to(libraries)).symlink_to(source)
    (folder / f"{wheel.name}.libs").symlink_to(wheel.parent / f"{wheel.name}.libs")
    ours = pathlib.Path(os.environ["NIXL_PLUGIN_DIR"]) / "libplugin_TCPX.so"
    (mirror / "plugins" / ours.name).symlink_to(ours)
    return mirror / "plugins"


@case(places=())
def backends_end_and_begin_again(test):
    """Agents made and dropped many times in one process; nothing is left that is in the way."""
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(10 if test.ours else 3):
        agent = test.here("agent")
        base = agent.alloc("b", 10_000)
        agent.fill("b", turn, 0, 5000)
        agent.move("WRITE", [(base, 5000)], [(base + 5000, 5000)], "agent")
        agent.check("b", turn, 5000, 5000, 0)
        agent.close()
        test.sides.remove(agent)
        if turn == 1:
            before = len(os.listdir("/proc/self/fd"))
    after = len(os.listdir("/proc/self/fd"))
    require(not test.ours or after <= before, f"{after - before} file descriptors are left")


class captured_stderr:
    """with captured_stderr() as log: log() is what was written to fd 2 so far, also by libraries."""

    def __enter__(self):
        self.file = tempfile.TemporaryFile("w+", errors="replace")
        self.saved = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self.text

    def text(self):
        self.file.seek(0)
        return self.file.read()

    def __exit__(self, *_):
        os.dup2(self.saved, 2)
        os.close(self.saved)
        self.file.seek(0)
        os.write(2, self.file.read().encode(errors="replace"))
        self.file.close()
