"""A Weir server of its own for a measurement. `psql` is needed, nothing else."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request


class Server:
    """Runs on an empty data directory and on ports that the operating system chooses."""

    def __init__(self, binary, *arguments):
        self.binary, self.arguments = binary, arguments
        self.dir = tempfile.mkdtemp()
        self.start()

    def start(self):
        self.log = open(f"{self.dir}/log", "a")
        listen = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--data-dir", f"{self.dir}/data"]
        self.process = subprocess.Popen([self.binary, "serve", *listen, *self.arguments], stderr=self.log)
        while True:
            said = open(f"{self.dir}/data/LOCK").read().split() if os.path.exists(f"{self.dir}/data/LOCK") else []
            if len(said) == 3 and said[0] == str(self.process.pid):
                break
            if self.process.poll() is not None:
                sys.exit(open(f"{self.dir}/log").read())
            time.sleep(0.005)
        self.port, self.http = (address.rsplit(":", 1)[1] for address in said[1:])

    def psql(self):
        return ["psql", "-XqAt", "-h", "127.0.0.1", "-p", self.port, "-U", "root", "-d", "dev", "-v", "ON_ERROR_STOP=1"]

    def sql(self, text):
        done = subprocess.run([*self.psql(), "-c", text], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{text}\n{done.stderr}")
        return done.stdout.strip()

    def source_rows(self):
        """Rows that sources have given, up to the newest barrier."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics").read().decode()
        lines = [l for l in text.splitlines() if l.startswith("weir_task_rows{") and 'node="Source"' in l]
        return sum(int(l.rsplit(" ", 1)[1]) for l in lines)

    def cpu_s(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def status_mb(self, what):
        """`VmHWM` (peak memory) or `VmRSS` (memory)."""
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith(what):
                return int(line.split()[1]) // 1024

    def state_mb(self):
        return int(subprocess.run(["du", "-sm", f"{self.dir}/data"], capture_output=True, text=True).stdout.split()[0])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.terminate()
        self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Session:
    """One connection that stays."""

    def __init__(self, server):
        self.process = subprocess.Popen(server.psql(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def run(self, sql):
        """Runs statements and returns the lines of their results."""
        self.process.stdin.write(f"{sql};\n\\echo done\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline()) != "done\n":
            if not line:
                raise RuntimeError(f"the session ended in: {sql}")
            lines.append(line.rstrip("\n"))
        return lines
