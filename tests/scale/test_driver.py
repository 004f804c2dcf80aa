"""The driver's scheduling: the size of tasks, and what happens to lost ones."""

import numpy as np
import pytest

from exactline.errors import MissingError
from exactline.scale.backend import TaskOutcome
from exactline.scale.batch import LineBatch, WorkerTask
from exactline.scale.cost_model import CostModel
from exactline.scale.driver import Driver, Progress
from exactline.scale.planner import TASK_SECONDS, Planner
from exactline.scale.worker import TaskReport


def batches(count: int, size: int = 8):
    for k in range(count):
        numbers = np.arange(k * size, (k + 1) * size)
        starts, ends = np.zeros((size, 2)), np.ones((size, 2)) * (1 + k % 3)
        yield LineBatch(numbers, numbers.astype(np.uint32), (starts,), (ends,))


class NumberRecorder:
    """Records only the numbers of lines."""

    def __init__(self):
        self.numbers, self.failures = [], {}

    def add(self, task, report):
        self.numbers += report.numbers.tolist()

    def add_failure(self, task, failure):
        self.failures |= dict.fromkeys(task.numbers.tolist(), failure)

    def progress(self):
        return Progress(len(self.numbers), None, 0, 0, 1.0, len(self.numbers))


class DyingBackend:
    """A backend whose workers die over some lines, always or a few times."""

    def __init__(self, deadly_lines, workers: int = 2, max_deaths: int = 10**9):
        self.deadly_lines, self.workers, self.max_deaths = set(deadly_lines), workers, max_deaths
        self.queue, self.deaths = [], 0

    def free_slots(self):
        return 2 * self.workers - len(self.queue)

    def submit(self, task):
        assert self.free_slots() > 0
        self.queue.append(task)

    def wait(self):
        task = self.queue.pop(0)
        if self.deadly_lines & set(task.numbers.tolist()) and self.deaths < self.max_deaths:
            self.deaths += 1
            return [TaskOutcome(task, 0, reason="killed")]
        return [TaskOutcome(task, 1, TaskReport(task.numbers, {}, 3 * len(task), 0, 0.01 * len(task)))]

    def close(self):
        pass


def drive(backend, count: int = 50):
    recorder = NumberRecorder()
    Driver(Planner(batches(count), backend.workers), backend, recorder).run()
    return recorder


def test_a_line_that_kills_its_workers_is_recorded_and_the_rest_goes_on():
    recorder = drive(DyingBackend({100, 333}))
    assert sorted(recorder.failures) == [100, 333]
    assert "died 3 times" in recorder.failures[100].problem
    assert sorted(recorder.numbers) == [n for n in range(400) if n not in (100, 333)]


def test_workers_that_die_now_and_then_lose_nothing():
    recorder = drive(DyingBackend({5, 50, 90}, max_deaths=10))
    assert not recorder.failures
    assert sorted(recorder.numbers) == list(range(400))


def test_workers_that_always_die_end_the_run():
    with pytest.raises(MissingError, match="died one after another: killed"):
        drive(DyingBackend(range(400)))


def test_tasks_grow_to_the_target_cost_and_shrink_at_the_end():
    planner, costs = Planner(batches(4000), 4, total_lines=32_000), []
    while (task := planner.next_task()) is not None:
        costs.append(1e-3 * len(task) + 2e-3 * task.length)
        planner.cost_model.update(len(task), task.length, costs[-1], 1)
    assert costs[0] < 0.1
    assert max(costs) < 1.05 * TASK_SECONDS
    assert sum(c > 0.9 * TASK_SECONDS for c in costs) > 0.4 * len(costs)
    assert costs[-1] < 0.1 * TASK_SECONDS


def test_the_cost_model_tells_long_lines_from_short_ones():
    model, rng = CostModel(), np.random.default_rng(0)
    for _ in range(200):
        lines, length = int(rng.integers(1, 100)), rng.uniform(1, 1000)
        model.update(lines, length, (0.01 * lines + 0.002 * length) * rng.uniform(0.8, 1.25), 5 * lines)
    assert model.predict_seconds(100, 0.0) == pytest.approx(1.0, rel=0.25)
    assert model.predict_seconds(0, 1000.0) == pytest.approx(2.0, rel=0.25)
    assert model.breaks_per_line == pytest.approx(5)


def test_a_task_splits_by_batches_and_then_by_lines():
    task = WorkerTask(tuple(batches(3)))
    first, second = task.split()
    assert [len(half.batches) for half in (first, second)] == [1, 2]
    assert [half.numbers.tolist() for half in first.split()] == [[0, 1, 2, 3], [4, 5, 6, 7]]
