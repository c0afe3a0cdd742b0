"""`diptych plan`: how many AR and DiT replicas a target needs, what they cost, and what the monolith would.

profile.py     measured or published stage times, read from YAML or JSON
workload.py    the target: images a second, p95, the mix of sizes and steps
stage_times.py seconds of each stage for any size, steps and batch, from a profile
queueing.py    the two stages as queues, in closed form
predict.py     throughput, percentiles, load and cost of one fleet
search.py      the cheapest fleet that meets the target
simulate.py    the same scheduler as the gateway's, event by event
report.py      the answer as text; plot.py: as figures
"""
