"""Contenders as processes that wait for their turns, and the rounds of turns of a case."""
import json
import os
import queue
import statistics
import subprocess
import tempfile
import threading
import time

from peers import Unavailable, command, environment, framework

FIRST_STEP_TIMEOUT = 600
TURN_TIMEOUT = 300
WARM_UP_STEPS = 2
CORES = sorted(os.sched_getaffinity(0))


def pinned(argv, core):
    return ['taskset', '-c', str(core), *map(str, argv)]


def free_memory_gb():
    with open('/proc/meminfo') as f:
        kib = next(line.split()[1] for line in f if line.startswith('MemAvailable:'))
    return float(kib) / 2 ** 20


class Process:
    """One peer process: asked by lines, answers by lines of JSON."""

    def __init__(self, argv, core):
        self.errors = tempfile.TemporaryFile('w+')
        self.process = subprocess.Popen(pinned(argv, core), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=environment())
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, line):
        try:
            self.process.stdin.write(line + '\n')
            self.process.stdin.flush()
        except OSError:
            pass  # the answer says that it has ended

    def answer(self, timeout):
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise Unavailable(f'no answer within {timeout} s') from None
        if line is None:
            self.errors.seek(0)
            lines = [line.strip() for line in self.errors if line.strip()]
            raise Unavailable(f'ended: {lines[-1][-300:] if lines else "no message"}')
        return json.loads(line)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.errors.close()
        try:
            self.process.stdin.close()
        except OSError:
            pass  # nobody was left to read the rest


class Peer:
    """A contender that stays, in as many processes as the case has."""

    def __init__(self, contender, case):
        argv = command(contender, case.options)
        self.processes = []
        try:
            for core in CORES[:case.processes]:
                self.processes.append(Process(argv, core))
            starts = [process.answer(FIRST_STEP_TIMEOUT) for process in self.processes]
            self.result = dict(parameters=starts[0]['parameters'],
                               first_step_s=max(start['first_step_s'] for start in starts), rates=[], diverged=False)
            self.models = starts[0]['models']
            self.turn(f'steps {WARM_UP_STEPS}')
        except Unavailable:
            self.close()
            raise

    def turn(self, line):
        for process in self.processes:
            process.ask(line)
        answers = [process.answer(TURN_TIMEOUT) for process in self.processes]
        self.result['peak_rss_mb'] = max(answer['peak_rss_mb'] for answer in answers)
        self.result['diverged'] |= any(loss is None for answer in answers for loss in answer['losses'])
        return sum(self.models / statistics.median(answer['times']) for answer in answers)

    def measure(self, seconds):
        self.result['rates'].append(self.turn(f'seconds {seconds}'))

    def close(self):
        for process in self.processes:
            process.close()


class Nap:
    """This program: every turn is a new process (two, side by side) of `nap bench`."""

    def __init__(self, contender, case):
        self.argv, self.case = command(contender, case.options), case
        self.result = dict(parameters=0, rates=[], diverged=False, first_steps_s=[], peak_rss_mb=0.0)
        self.turn(0)

    def turn(self, seconds):
        argv = [*self.argv, f'--seconds={seconds}']
        running = [subprocess.Popen(pinned(argv, core), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for core in CORES[:self.case.processes]]
        rates, answers = [], []
        try:
            for process in running:
                answers.append(process.communicate(timeout=TURN_TIMEOUT))
        except subprocess.TimeoutExpired:
            raise Unavailable(f'no answer within {TURN_TIMEOUT} s') from None
        finally:
            for process in running:
                process.kill()
        for process, (out, errors) in zip(running, answers):
            if process.returncode:
                raise Unavailable(errors.strip().removeprefix('error: '))
            figures = json.loads(out)
            rates.append(figures['steps_per_s'] or 0.0)
            result = self.result
            result['parameters'] = figures['parameters']
            result['diverged'] |= figures['diverged']
            result['first_steps_s'].append(figures['first_step_s'])
            result['first_step_s'] = statistics.median(result['first_steps_s'])
            result['peak_rss_mb'] = max(result['peak_rss_mb'], figures['peak_rss_mb'] or 0.0)
            for key in ('gflops', 'peak_gflops', 'peak_share', 'validation_sequences_per_s', 'isa', 'profile'):
                result.setdefault(key, []).append(figures[key])
        return sum(rates)

    def measure(self, seconds):
        self.result['rates'].append(self.turn(seconds))

    def close(self):
        pass


def measure(case, contenders, rounds, seconds, say):
    """Results by name of the contender: figures, or the reason why there are none."""
    results, taking_part = {}, {}
    try:
        for contender in contenders:
            say(f'{case.name}: starting {contender.name}')
            try:
                if free_memory_gb() < 3:
                    raise Unavailable('less than 3 GB of memory is free')
                kind = Nap if framework(contender.peer) == 'nap' else Peer
                taking_part[contender] = kind(contender, case)
            except Unavailable as error:
                results[contender.name] = dict(error=str(error))
        rounds = min(rounds, case.rounds or rounds)
        for number in range(rounds):
            say(f'{case.name}: round {number + 1} of {rounds}')
            # Another order each time, so that none always follows the same neighbour.
            order = list(taking_part)
            order = order[number % len(order):] + order[:number % len(order)] if order else order
            for contender in order:
                try:
                    taking_part[contender].measure(seconds)
                except Unavailable as error:
                    results[contender.name] = dict(error=str(error))
                    taking_part.pop(contender).close()
    finally:
        for contender, running in taking_part.items():
            running.close()
            results[contender.name] = running.result
    return {contender.name: dict(results[contender.name], precision=contender.precision)
            for contender in contenders if contender.name in results}


def losses(contender, options, steps):
    """The losses of a peer's first steps, for the check that it learns."""
    process = Process(command(contender, options), CORES[0])
    try:
        started = time.monotonic()
        first = process.answer(FIRST_STEP_TIMEOUT)
        process.ask(f'steps {steps - 1}')
        rest = process.answer(TURN_TIMEOUT)['losses']
        return first['parameters'], first['losses'] + rest, time.monotonic() - started
    finally:
        process.close()
