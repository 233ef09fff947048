#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run a test beside a real etcd of three members.

usage: with_etcd.py PROGRAM [ARGUMENT ...]

DDPRUN_TEST_ETCD tells the program where they are: "127.0.0.1:PORT,...".
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import etcd_cluster  # noqa: E402


def main(command):
    if etcd_cluster.why_not():
        print(f"skipped: {etcd_cluster.why_not()}")
        return 77
    with tempfile.TemporaryDirectory(prefix="ddprun-etcd-") as folder:
        cluster = etcd_cluster.EtcdCluster(folder)
        try:
            return subprocess.run(command, env={**os.environ, "DDPRUN_TEST_ETCD": cluster.endpoints},
                                  check=False).returncode
        finally:
            cluster.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
