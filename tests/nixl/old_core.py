#!/usr/bin/env python3
"""NIXL before 1.0.0 has another backend interface under the same version number: the backend must
refuse such a core with a message. Run by the Python of build/venv-nixl-0.10.1 with NIXL_PLUGIN_DIR."""
import os
import subprocess
import sys

BODY = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].Tensor = type("Tensor", (), {})
from nixl._api import nixl_agent, nixl_agent_config
try:
    agent = nixl_agent("agent", nixl_agent_config(backends=[]))
    agent.create_backend("TCPX", {})
except Exception as error:
    print("refused:", repr(error))
"""


def main():
    result = subprocess.run([sys.executable, "-c", BODY], timeout=60, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env={**os.environ, "NIXL_LOG_LEVEL": "INFO"})
    print(result.stdout)
    refused = result.returncode == 0 and "refused:" in result.stdout
    explained = "older than NIXL 1.0.0" in result.stdout
    if not (refused and explained):
        print(f"exit {result.returncode}, refused: {refused}, with the reason: {explained}")
    return 0 if refused and explained else 1


if __name__ == "__main__":
    sys.exit(main())
