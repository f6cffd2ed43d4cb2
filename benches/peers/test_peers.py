"""python3 -m unittest discover benches/peers: the comparison itself, without any framework."""
import sys
import unittest
from unittest import mock

import cases
import measure
import peers
import table

# Takes turns as the peers do; steps take as long as asked for.
FAKE = '''
import json, sys
print(json.dumps(dict(parameters=7, models=2, first_step_s=0.5, losses=[3.0])), flush=True)
for line in sys.stdin:
    kind, number = line.split()
    count = int(number) if kind == 'steps' else 1
    print(json.dumps(dict(times=[0.25] * count, losses=[LOSS] * count, peak_rss_mb=12.5)), flush=True)
'''
DIES = 'import sys; sys.exit("RuntimeError: no such kernel")'


def case(processes=1):
    return cases.Case('case', 'a case', [], processes=processes)


def measured(script, contender=cases.Contender('torch', 'linear'), processes=1):
    with mock.patch.object(measure, 'command', lambda *_: [sys.executable, '-c', script]):
        results = measure.measure(case(processes), [contender], 2, 0.1, lambda _: None)
    return results[contender.name]


class Turns(unittest.TestCase):
    def test_rates_are_of_all_models_and_processes(self):
        result = measured(FAKE.replace('LOSS', '2.0'), processes=min(2, len(measure.CORES)))
        rate = 2 / 0.25 * min(2, len(measure.CORES))
        self.assertEqual(result['rates'], [rate, rate])
        self.assertEqual((result['parameters'], result['peak_rss_mb'], result['diverged']), (7, 12.5, False))

    def test_a_loss_that_is_not_a_number_is_divergence(self):
        self.assertTrue(measured(FAKE.replace('LOSS', 'None'))['diverged'])

    def test_what_does_not_run_is_a_result(self):
        self.assertEqual(measured(DIES)['error'], 'ended: RuntimeError: no such kernel')
        later = FAKE.replace("kind, number", "if kind := line.startswith('seconds'): sys.exit('out of memory')\n    kind, number")
        self.assertEqual(measured(later.replace('LOSS', '2.0'))['error'], 'ended: out of memory')

    def test_what_cannot_be_installed_is_a_result_once(self):
        contender, other = cases.Contender('torch', 'linear'), cases.Contender('torch', 'quadratic')
        with mock.patch.object(peers, 'install', side_effect=peers.Unavailable('no network')) as install, \
                mock.patch.dict(peers.STARTS, clear=True):
            results = measure.measure(case(), [contender, other], 2, 0.1, lambda _: None)
        self.assertEqual({result['error'] for result in results.values()}, {'no network'})
        install.assert_called_once_with('torch')


def result(*rates, precision='f32', **others):
    return dict(rates=list(rates), precision=precision, parameters=7, diverged=False, peak_rss_mb=30.0, **others)


class Tables(unittest.TestCase):
    def setUp(self):
        self.case = dict(name='default', title='A step', processes=2, options={}, results={
            'nap linear': result(9.0, 10.0, 30.0),
            'nap-bf16 linear': dict(error='--precision bf16: expected f32', precision='bf16'),
            'torch linear': result(5.0, 4.0, 1.0),
            'torch quadratic': result(99.0, 99.0, 99.0) | dict(diverged=True),
            'jax linear': result(2.0, 2.0, 2.0) | dict(parameters=8),
            'torch-compile-bf16 linear': result(8.0, precision='bf16'),
        })

    def test_ratios_are_of_medians_and_leave_out_what_diverged(self):
        line = table.summary([self.case]).splitlines()[-1]
        self.assertEqual(line, '| A step | 10.0 | torch linear, 4.00 | 2.50 | - | torch-compile-bf16 linear, 8.00 | - |')

    def test_details_say_what_is_wrong(self):
        text = table.details(self.case)
        for part in ('| torch linear | 4.00 | 1.00 to 5.00 | 2.50x |', 'diverged (NaN)', 'expected f32',
                     'has 8 parameters instead of 7'):
            self.assertIn(part, text)

    def test_exponents_are_slopes(self):
        self.assertAlmostEqual(table.exponent([(n, 3 * n ** 2) for n in (2, 4, 8)]), 2)
        self.assertIsNone(table.exponent([(2, 1.0)]))

    def test_numbers_have_three_digits(self):
        self.assertEqual([table.number(x) for x in (0.01234, 1.234, 12.34, 123.4, 12340.0, None)],
                         ['0.0123', '1.23', '12.3', '123', '12340', '-'])


if __name__ == '__main__':
    unittest.main()
