"""The fuzzer: small real cubes of every format, journals and weights, damaged or lying, given to the command line.

`python -m tests.fuzz --minutes N --seed S` makes cases until the time is over and saves what breaks something;
`kills` kills runs and resumes them, `steady` watches memory over many jobs. A case is fixed by its seed, kind and
number, so what was found can be made again.
"""
