"""Runs the examples of python.md, those with packages only where these are installed.

Needs the program, as `cargo build -p nap` leaves it, or at the path in NAP.
"""

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
NAP = pathlib.Path(os.environ.get("NAP", TARGET / "debug" / "nap")).resolve()


def blocks(language):
    page = (HERE / "python.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def installed(block):
    packages = re.findall(r"^(?:import|from) (pandas|numpy|safetensors)", block, re.MULTILINE)
    if "parquet" in block:
        packages.append("pyarrow")
    return all(importlib.util.find_spec(package) for package in packages)


class Page(unittest.TestCase):
    def test_every_example_runs(self):
        self.assertTrue(NAP.is_file(), f"{NAP}: expected the program (cargo build -p nap)")
        examples = blocks("python")
        self.assertGreater(len(examples), 5)
        before = pathlib.Path.cwd()
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            try:
                shutil.copy(ROOT / "crates/lab/data/cells.csv", directory)
                (commands,) = blocks("sh")
                for command in commands.splitlines():
                    program, *arguments = shlex.split(command)
                    self.assertEqual(program, "nap")
                    subprocess.run([NAP, *arguments], check=True, stdout=subprocess.DEVNULL)
                self.run_all(examples)
            finally:
                os.chdir(before)

    def run_all(self, examples):
        names = {}
        printed = io.StringIO()
        for example in filter(installed, examples):
            with self.subTest(example=example), contextlib.redirect_stdout(printed):
                exec(compile(example, "python.md", "exec"), names)
        self.assertIn("nap  0.0081", printed.getvalue())
        if os.environ.get("SHOW"):
            print(printed.getvalue())


if __name__ == "__main__":
    unittest.main()
