"""The driver's own rules: batches of the cost that is wanted, and what becomes of those that are lost."""

import numpy as np
import pytest

from exactline.errors import MissingError
from exactline.scale.batch import Batch, Block
from exactline.scale.driver import Driver, Progress
from exactline.scale.engine import Outcome
from exactline.scale.estimate import Estimate
from exactline.scale.planner import SOON, Planner
from exactline.scale.worker import Report


def blocks(count: int, size: int = 8):
    for k in range(count):
        numbers = np.arange(k * size, (k + 1) * size)
        starts, ends = np.zeros((size, 2)), np.ones((size, 2)) * (1 + k % 3)
        yield Block(numbers, numbers.astype(np.uint32), (starts,), (ends,))


class Shelf:
    """Keeps nothing but numbers."""

    def __init__(self):
        self.kept, self.noted = [], {}

    def keep(self, batch, report):
        self.kept += report.done.tolist()

    def note(self, batch, note):
        self.noted |= dict.fromkeys(batch.numbers.tolist(), note)

    def progress(self):
        return Progress(len(self.kept), None, 0, 0, 1.0, len(self.kept))


class Deadly:
    """An engine whose workers die over some lines, always or a few times."""

    def __init__(self, deadly, workers: int = 2, mercy: int = 10**9):
        self.deadly, self.workers, self.mercy, self.queue, self.deaths = set(deadly), workers, mercy, [], 0

    def room(self):
        return 2 * self.workers - len(self.queue)

    def submit(self, batch):
        assert self.room() > 0
        self.queue.append(batch)

    def wait(self):
        batch = self.queue.pop(0)
        if self.deadly & set(batch.numbers.tolist()) and self.deaths < self.mercy:
            self.deaths += 1
            return [Outcome(batch, 0, reason="killed")]
        return [Outcome(batch, 1, Report(batch.numbers, {}, 3 * len(batch), 0, 0.01 * len(batch)))]

    def close(self):
        pass


def driven(engine, count: int = 50):
    shelf = Shelf()
    Driver(Planner(blocks(count), engine.workers), engine, shelf).run()
    return shelf


def test_a_line_that_kills_its_workers_is_recorded_and_the_rest_goes_on():
    shelf = driven(Deadly({100, 333}))
    assert sorted(shelf.noted) == [100, 333]
    assert "died 3 times" in shelf.noted[100].problem
    assert sorted(shelf.kept) == [n for n in range(400) if n not in (100, 333)]


def test_workers_that_die_now_and_then_lose_nothing():
    shelf = driven(Deadly({5, 50, 90}, mercy=10))
    assert not shelf.noted
    assert sorted(shelf.kept) == list(range(400))


def test_workers_that_always_die_end_the_run():
    with pytest.raises(MissingError, match="died one after another: killed"):
        driven(Deadly(range(400)))


def test_batches_grow_to_the_cost_that_is_wanted_and_shrink_at_the_end():
    planner, costs, true = Planner(blocks(4000), 4, total=32_000), [], lambda b: 1e-3 * len(b) + 2e-3 * b.length
    while (batch := planner.next()) is not None:
        costs.append(true(batch))
        planner.estimate.learn(len(batch), batch.length, costs[-1], 1)
    assert costs[0] < 0.1
    assert max(costs) < 1.05 * SOON
    assert sum(c > 0.9 * SOON for c in costs) > 0.4 * len(costs)
    assert costs[-1] < 0.1 * SOON


def test_the_estimate_tells_long_lines_from_short_ones():
    learnt, rng = Estimate(), np.random.default_rng(0)
    for _ in range(200):
        lines, length = int(rng.integers(1, 100)), rng.uniform(1, 1000)
        learnt.learn(lines, length, (0.01 * lines + 0.002 * length) * rng.uniform(0.8, 1.25), 5 * lines)
    assert learnt.seconds(100, 0.0) == pytest.approx(1.0, rel=0.25)
    assert learnt.seconds(0, 1000.0) == pytest.approx(2.0, rel=0.25)
    assert learnt.breaks == pytest.approx(5)


def test_a_batch_splits_by_blocks_and_then_by_lines():
    batch = Batch(tuple(blocks(3)))
    first, second = batch.halves()
    assert [len(b.blocks) for b in (first, second)] == [1, 2]
    assert [half.numbers.tolist() for half in first.halves()] == [[0, 1, 2, 3], [4, 5, 6, 7]]
