# SPDX-License-Identifier: BSD-3-Clause
"""Hosts with addresses and names of their own on one machine, and a network that can be broken.

A host is a network namespace, entered with a UTS and a mount namespace of its own; a bridge in one
more namespace joins them.  Nothing outside these namespaces is touched.  Needs root, `ip` and `nft`."""

import ipaddress
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ENTER = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'


def why_not():
    """What this machine lacks for it; empty if nothing."""
    for tool in ("ip", "nft", "nsenter", "unshare"):
        if not shutil.which(tool):
            return f"there is no {tool} here"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True)
    return "" if probe.returncode == 0 else f"no namespaces can be made here: {probe.stderr.strip()}"


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    """node0, node1, ... at 10.77.0.1, ... and fd77::1, ...; all resolve each other.  close() takes
    everything away; what still runs inside must have been ended before."""

    def __init__(self, count):
        self.folder = tempfile.TemporaryDirectory(prefix="ddprun-hosts-")
        self.prefix = f"ddp{os.getpid()}x"
        self.count = count
        self.switch = f"{self.prefix}sw"
        self.made = []
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self):
        self.add_namespace(self.switch)
        run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        run("ip", "-n", self.switch, "link", "set", "br0", "up")
        for k in range(self.count):
            name = self.namespace(k)
            self.add_namespace(name)
            run("ip", "-n", self.switch, "link", "add", f"p{k}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", name, "addr", "add", f"{self.address(k)}/24", "dev", "eth0")
            run("ip", "-n", name, "addr", "add", f"{self.address6(k)}/64", "dev", "eth0", "nodad")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", self.switch, "link", "set", f"p{k}", "master", "br0", "up")
        for k in range(self.count):
            self.wait_for_link(k)
        names = "".join(f"{self.address(k)} node{k}\n" for k in range(self.count))
        self.hosts_file().write_text("127.0.0.1 localhost\n" + names)
        # As Debian's installer writes it: a host's own name is a loopback address.
        for k in range(self.count):
            self.hosts_file(k).write_text(f"127.0.0.1 localhost\n127.0.1.1 node{k}\n" + names)

    def add_namespace(self, name):
        run("ip", "netns", "add", name)
        self.made.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def wait_for_link(self, k):
        deadline = time.monotonic() + 30
        while "LOWER_UP" not in run("ip", "-n", self.namespace(k), "link", "show", "eth0"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"node{k} has no link")
            time.sleep(0.02)

    def namespace(self, k):
        return f"{self.prefix}{k}"

    @staticmethod
    def address(k):
        return str(ipaddress.ip_address("10.77.0.1") + k)

    @staticmethod
    def address6(k):
        return str(ipaddress.ip_address("fd77::1") + k)

    def hosts_file(self, k=None):
        """All names; with `k` as that host sees them where its own name is 127.0.1.1."""
        return pathlib.Path(self.folder.name) / ("hosts" if k is None else f"hosts{k}")

    def on(self, k, *command, own_name_is_loopback=False, hosts=None):
        """The command line that becomes `command` on a host: no process stays in between.  `hosts` is
        what it reads as /etc/hosts."""
        hosts = hosts or self.hosts_file(k if own_name_is_loopback else None)
        return ["nsenter", f"--net=/run/netns/{self.namespace(k)}", "unshare", "--uts", "--mount",
                "sh", "-c", ENTER, "sh", f"node{k}", str(hosts), *map(str, command)]

    def processes(self, k):
        """What runs on a host, by pid."""
        return [int(pid) for pid in run("ip", "netns", "pids", self.namespace(k)).split()]

    def isolate(self, k):
        """Silence: the host's link stays up, and nothing passes it."""
        run("ip", "-n", self.switch, "link", "set", f"p{k}", "nomaster")

    def heal(self, k):
        run("ip", "-n", self.switch, "link", "set", f"p{k}", "master", "br0")

    def cut_one_way(self, source, target):
        """Frames from `source` to `target` are dropped; the others pass."""
        self._drop(f"iifname p{source} oifname p{target}")

    def cut_between(self, one, other):
        """Nothing passes between these two; each reaches all others."""
        self._drop(f"iifname p{one} oifname p{other}", f"iifname p{other} oifname p{one}")

    def cut_off_one_way(self, source):
        """Frames from `source` to all others are dropped; what they send arrives."""
        self._drop(f"iifname p{source}")

    def fall_apart(self, *part):
        """Nothing passes between these hosts and the others."""
        others = [k for k in range(self.count) if k not in part]
        pairs = [(one, other) for one in part for other in others]
        self._drop(*(f"iifname p{a} oifname p{b}" for pair in pairs for a, b in (pair, pair[::-1])))

    def cut_flow(self, source, port):
        """Packets of one TCP connection of a host are dropped, in both directions."""
        self._drop(f"ip saddr {self.address(source)} tcp sport {port}",
                   f"ip daddr {self.address(source)} tcp dport {port}")

    def deafen(self, target, port):
        """What comes to one TCP connection of a host is dropped, but for packets without anything in them."""
        bare = 20 + 20 + 40  # IPv4's header, TCP's, and its options at most
        self._drop(f"ip daddr {self.address(target)} tcp dport {port} ip length > {bare}")

    def open_only(self, target, port):
        """New connections to a host pass to this port only."""
        self._drop(f"ip daddr {self.address(target)} tcp flags syn / syn,ack tcp dport != {port}")

    def let_nobody_in(self, target):
        """No new connection to a host comes about; its own to others do."""
        self._drop(f"ip daddr {self.address(target)} tcp flags syn / syn,ack")

    def _drop(self, *frames):
        """What one of these nftables expressions matches is dropped by the switch."""
        rules = ["add table bridge cut",
                 "add chain bridge cut forward { type filter hook forward priority 0; policy accept; }"]
        rules += [f"add rule bridge cut forward {frame} drop" for frame in frames]
        run("ip", "netns", "exec", self.switch, "nft", "-f", "-", text="\n".join(rules) + "\n")

    def reset(self, k, target):
        """What a host sends to another one by TCP is answered by a reset, as by a firewall, until it `passes`."""
        rules = ("add table ip resets", "add chain ip resets output { type filter hook output priority 0; policy accept; }",
                 f"add rule ip resets output ip daddr {self.address(target)} ip protocol tcp reject with tcp reset")
        run("ip", "netns", "exec", self.namespace(k), "nft", "-f", "-", text="\n".join(rules) + "\n")

    def passes(self, k):
        subprocess.run(["ip", "netns", "exec", self.namespace(k), "nft", "delete", "table", "ip", "resets"],
                       capture_output=True, check=False)  # there may be none

    def slow_down(self, k, milliseconds):
        """Each frame from and to a host takes so much longer, until the function that is returned is
        called."""
        program = pathlib.Path(__file__).with_name("link_delay.py")
        run("ip", "netns", "exec", self.namespace(k), sys.executable, str(program), "whole-frames", "eth0")
        relay = subprocess.Popen(["ip", "netns", "exec", self.switch, sys.executable, program, f"p{k}", "br0",
                                  str(milliseconds)], stdout=subprocess.PIPE, text=True)
        if relay.stdout.readline() != "ready\n":
            raise RuntimeError(f"node{k} cannot be slowed down")

        def end():
            relay.terminate()
            relay.wait()
            relay.stdout.close()
        return end

    def mend(self):
        subprocess.run(["ip", "netns", "exec", self.switch, "nft", "delete", "table", "bridge", "cut"],
                       capture_output=True, check=False)  # there may be none

    def close(self):
        for name in reversed(self.made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self.made.clear()
        self.folder.cleanup()
