"""How each contender is installed and started."""
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# Git ignores it there. Several GB: PyTorch brings its GPU libraries, on Linux also for processors alone.
HOME = Path(os.environ.get('PEERS_HOME', REPOSITORY / 'target' / 'peers'))

PYTHON = {'torch': 'torch_peer.py', 'jax': 'jax_peer.py'}


class Unavailable(Exception):
    """A contender that cannot take part, and why."""


def framework(peer):
    return peer.split('-')[0]


def shell(command, **options):
    """Runs a command; its last lines are the reason if it fails."""
    try:
        done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              **options)
    except OSError as error:
        raise Unavailable(f'{command[0]}: {error}') from None
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        raise Unavailable(f'{Path(command[0]).name} {command[1]}: {" ".join(lines[-3:])[-300:]}')
    return done.stdout


def installed(name):
    """Installs or builds a framework's peer, or says why not, once; returns what starts it."""
    if name not in STARTS:
        print(f'setting up {name} ...', file=sys.stderr, flush=True)
        try:
            STARTS[name] = install(name)
        except Unavailable as error:
            STARTS[name] = error
    if isinstance(STARTS[name], Unavailable):
        raise STARTS[name]
    return STARTS[name]


STARTS = {}


def install(name):
    if name == 'nap':
        # What a user runs: no flags of this machine.
        shell(['cargo', 'build', '--release', '--locked', '-p', 'nap'], cwd=REPOSITORY)
        target = Path(os.environ.get('CARGO_TARGET_DIR', REPOSITORY / 'target'))
        return [target / 'release' / 'nap']
    if name in PYTHON:
        environment = HOME / name
        requirements = HERE / f'requirements-{name}.txt'
        stamp = environment / 'installed.txt'
        if not stamp.exists() or stamp.read_text() != requirements.read_text():
            shell([sys.executable, '-m', 'venv', environment])
            shell([environment / 'bin' / 'pip', 'install', '-r', requirements])
            stamp.write_text(requirements.read_text())
        return [environment / 'bin' / 'python', HERE / PYTHON[name]]
    # The frameworks' own loops are compiled for this machine.
    flags = dict(os.environ, RUSTFLAGS='-C target-cpu=native', CARGO_TARGET_DIR=str(HOME / 'rust'))
    shell(['cargo', 'build', '--release', '--locked', '-p', f'peer-{name}'], cwd=HERE, env=flags)
    return [HOME / 'rust' / 'release' / f'peer-{name}']


def command(contender, options):
    """The command line of a contender on a case."""
    start = installed(framework(contender.peer))
    pairs = [f'--{name}={value}' for name, value in options.items()]
    if framework(contender.peer) == 'nap':
        form = [f'--set=model.form={contender.form}'] if contender.form else []
        return [*start, 'bench', '--json', f'--precision={contender.precision}', *form, *pairs]
    if contender.form:
        pairs.append(f'--form={contender.form}')
    pairs = [part for pair in pairs for part in pair.split('=')]
    if 'compile' in contender.peer:
        pairs.append('--compile')
    if contender.precision == 'bf16':
        pairs.append('--bf16')
    if 'vmap' in contender.peer:
        pairs += ['--models', contender.peer.partition('vmap')[2]]
    return [*start, *pairs]


def environment():
    """One thread for every library; compiled graphs are kept."""
    one = {name: '1' for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'RAYON_NUM_THREADS')}
    return dict(os.environ, **one, TORCHINDUCTOR_CACHE_DIR=str(HOME / 'inductor'), TORCHINDUCTOR_COMPILE_THREADS='1')


def versions(names):
    """Frameworks and their versions."""
    known = {}
    for name in PYTHON:
        pins = (HERE / f'requirements-{name}.txt').read_text().splitlines()
        known[name] = next(pin.replace('==', ' ') for pin in pins if pin.startswith(f'{name}=='))
    for name in ('burn', 'candle'):
        manifest = (HERE / name / 'Cargo.toml').read_text().splitlines()
        line = next(line for line in manifest if line.startswith((f'{name} =', f'{name}-core =')))
        known[name] = f'{name} {re.search(r"[0-9.]+[0-9]", line)[0]}'
    try:
        known['nap'] = shell([*installed('nap'), '--version']).strip()
    except Unavailable as error:
        known['nap'] = str(error)
    return {name: known[name] for name in names if name in known}
