# SPDX-License-Identifier: BSD-3-Clause
"""Debian packages, from a source package that is made of the checkout: ddprun and libddprun-dev.

What is the same for every version is in scripts/packaging/debian; this writes the rest of the folder "debian".
"""

import shutil
from datetime import datetime, timezone
from email.utils import format_datetime

from steps import Failed, made_whole, output_of, project_version, run, say, source_time

MAINTAINER = "ddprun authors <authors@ddprun.invalid>"  # a site that publishes it writes its own

CHANGELOG = """\
ddprun ({version}) unstable; urgency=medium

  * What has changed is in /usr/share/doc/ddprun/CHANGELOG.md.

 -- {maintainer}  {date}
"""

COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ddprun

Files: *
{copyright}
License: BSD-3-clause
{text}
"""

# The units in scripts/systemd are for a copy made by hand: (what stands there, what the package has).
UNIT_CHANGES = (
    ("# ddpd as a service.  Copy this file and ddpd.socket to /etc/systemd/system, set the path of ddpd,\n"
     "# then: systemctl enable --now ddpd.socket\n",
     "# ddpd as a service: systemctl enable --now ddpd.socket.  Options are changed with systemctl edit ddpd.service.\n"),
    ("ExecStart=/usr/local/bin/ddpd ", "ExecStart=/usr/bin/ddpd "),
    # The user of the package, which may read /etc/ddpd/secret of group ddpd; and what DynamicUser=yes implies.
    ("DynamicUser=yes\n", "User=ddpd\nRemoveIPC=yes\nRestrictSUIDSGID=yes\n"),
)


def make(root, jobs):
    """Builds the packages into build/package/deb and gives their paths, the source package's first."""
    folder = root / "build/package/deb"
    log = root / "build/package/deb.log"
    log.unlink(missing_ok=True)
    version = project_version(root)
    with made_whole(folder) as scratch:
        source = scratch / f"ddprun-{version}"
        copy_checkout(root, source)
        write_debian(root, source / "debian", version, source_time(root))
        say("compiling the Debian packages")
        run(["dpkg-buildpackage", "--build=full", "--no-sign", f"--jobs={jobs}"], log, cwd=source)
        shutil.rmtree(source)
    paths = sorted(folder.glob("*.dsc")) + sorted(folder.glob("*.deb"))
    for path in paths:
        say(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return paths


def copy_checkout(root, folder):
    """Copies the files that git knows."""
    for name in filter(None, output_of(["git", "ls-files", "-z"], cwd=root).split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name, follow_symlinks=False)


def write_debian(root, folder, version, seconds):
    """Writes the folder "debian" of the source package."""
    shutil.copytree(root / "scripts/packaging/debian", folder)
    (folder / "rules").chmod(0o755)
    control = folder / "control"
    control.write_text(control.read_text(encoding="utf-8").replace("@MAINTAINER@", MAINTAINER), encoding="utf-8")
    date = format_datetime(datetime.fromtimestamp(seconds, timezone.utc))
    texts = {
        "changelog": CHANGELOG.format(version=version, maintainer=MAINTAINER, date=date),
        "copyright": copyright_text((root / "LICENSE").read_text(encoding="utf-8")),
        "ddprun.ddpd.service": unit((root / "scripts/systemd/ddpd.service").read_text(encoding="utf-8")),
        "ddprun.ddpd.socket": (root / "scripts/systemd/ddpd.socket").read_text(encoding="utf-8"),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def copyright_text(licence):
    """debian/copyright, in the form that machines read, from the text of LICENSE: a title, the line of the
    copyright, the conditions."""
    _, owner, *conditions = licence.strip().split("\n\n")
    lines = "\n\n".join(conditions).splitlines()
    return COPYRIGHT.format(copyright=owner.replace("Copyright (c)", "Copyright:", 1),
                            text="\n".join(f" {line.rstrip() or '.'}" for line in lines))


def unit(text):
    """ddpd.service as the package has it; raises Failed where the unit is not as UNIT_CHANGES expects."""
    for before, after in UNIT_CHANGES:
        if text.count(before) != 1:
            raise Failed(f"scripts/systemd/ddpd.service has {before.splitlines()[0]!r} {text.count(before)} times, not once")
        text = text.replace(before, after)
    return text
