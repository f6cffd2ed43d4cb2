"""Results as Markdown: medians of the turns, and how many times as fast `nap` is."""
import math
import statistics


def median_rate(result):
    """Steps per second of all processes together; nothing for what could not be measured."""
    rates = result.get('rates')
    return statistics.median(rates) if rates and 'error' not in result else None


def is_nap(name):
    return name.split()[0].startswith('nap')


def fastest(results, ours, precision):
    """Name of the fastest contender that did not diverge: of `nap`, or of its peers."""
    rates = {name: median_rate(result) for name, result in results.items()
             if is_nap(name) == ours and result['precision'] == precision and not result.get('diverged')}
    rates = {name: rate for name, rate in rates.items() if rate}
    return max(rates, key=rates.get, default=None)


def number(value, digits=3):
    """A figure with so many significant digits."""
    if value is None or not math.isfinite(value) or value == 0:
        return '-'
    return f'{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}'


def row(*cells):
    return f'| {" | ".join(str(cell) for cell in cells)} |\n'


def header(*cells):
    return row(*cells) + '|---' * len(cells) + '|\n'


def summary(cases):
    """A row per case: `nap` beside the best peer of the same precision."""
    text = header('case', 'f32: nap', 'best peer', 'ratio', 'bf16: nap', 'best peer', 'ratio')
    for case in cases:
        cells = []
        for precision in ('f32', 'bf16'):
            ours, peer = (fastest(case['results'], who, precision) for who in (True, False))
            rates = [name and median_rate(case['results'][name]) for name in (ours, peer)]
            cells += [number(rates[0]), f'{peer}, {number(rates[1])}' if peer else '-',
                      number(rates[0] / rates[1]) if all(rates) else '-']
        text += row(case['title'], *cells)
    return text


def note(result, parameters):
    """What a reader has to know about a contender's figures."""
    notes = []
    if 'error' in result:
        notes.append(result['error'].replace('|', '/'))
    if result.get('diverged'):
        notes.append('diverged (NaN)')
    if parameters and result.get('parameters') and result['parameters'] != parameters:
        notes.append(f'has {result["parameters"]} parameters instead of {parameters}')
    if 'peak_share' in result:
        notes.append(f'{statistics.median(result["peak_share"]):.0%} of the peak of '
                     f'{max(result["peak_gflops"]):.0f} GFLOP/s')
    return '; '.join(notes)


def details(case):
    """A row per contender."""
    results = case['results']
    ours = fastest(results, True, 'f32')
    parameters = results[ours]['parameters'] if ours else None
    processes = f'{case["processes"]} processes of one thread' if case['processes'] > 1 else 'one process of one thread'
    text = f'\n### {case["title"]}\n\n{processes}; {parameters or "?"} parameters\n\n'
    text += header('contender', 'steps/s', 'lowest to highest', 'nap f32 is', 'first step, s', 'memory, MB', '')
    order = sorted(results, key=lambda name: -(median_rate(results[name]) or 0))
    for name in order:
        result, rate = results[name], median_rate(results[name])
        rates = result.get('rates', [])
        spread = f'{number(min(rates))} to {number(max(rates))}' if rate else '-'
        ratio = f'{number(median_rate(results[ours]) / rate)}x' if rate and ours else '-'
        text += row(name, number(rate), spread, ratio, number(result.get('first_step_s')),
                    number(result.get('peak_rss_mb')), note(result, parameters))
    return text


def exponent(points):
    """Slope of a line through (log x, log y): 1 for linear growth."""
    points = [(math.log(x), math.log(y)) for x, y in points if y]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points)).slope


def growth(cases):
    """Time and memory of the same model over the length of its one sequence."""
    names = sorted({name for case in cases for name in case['results']}, key=lambda name: (not is_nap(name), name))
    text = '\n### Growth with the length, one sequence\n\nms per step; MB\n\n'
    text += header('length', *names)
    for case in cases:
        cells = []
        for name in names:
            result = case['results'].get(name, {})
            rate = median_rate(result)
            cells.append(f'{number(1e3 / rate)}; {number(result["peak_rss_mb"])}' if rate else '-')
        text += row(case['options']['seq'], *cells)
    cells = []
    for name in names:
        of = [(case['options']['seq'], case['results'].get(name, {})) for case in cases]
        times = [(n, 1 / median_rate(result)) for n, result in of if median_rate(result)]
        memory = [(n, result['peak_rss_mb']) for n, result in of if median_rate(result)]
        cells.append(f'{number(exponent(times))}; {number(exponent(memory))}')
    return text + row('exponent', *cells)


def markdown(report):
    """The whole report."""
    machine = report['machine']
    text = (f'{machine["processor"]}, {machine["cores"]} cores; {machine["system"]}; {report["date"]}; '
            f'load before the start {machine["load"]}.\n\n')
    text += '; '.join(report['versions'].values()) + '.\n\n'
    text += (f'Steps per second of all processes together, medians of {report["rounds"]} turns of '
             f'{report["seconds"]} s, taken in turns. `linear` and `quadratic` are the forms of NAP.\n\n')
    lengths = [case for case in report['cases'] if case['name'].endswith('-16-heads')]
    others = [case for case in report['cases'] if case not in lengths]
    if others:
        text += summary(others)
    if lengths:
        text += growth(lengths)
    return text + ''.join(map(details, others))
