"""The groups ``exactline study`` and ``exactline train`` with their commands."""

from __future__ import annotations

from ...console.root import make_group
from .acas import acas
from .density import GreedyOptionsCommand, density
from .pendulum import pendulum
from .tables import all_studies, ig, linearity
from .train import digits

study_app = make_group("study", "Run the paper's experiments and write their tables and pictures into a folder.")
study_app.command()(acas)
study_app.command(cls=GreedyOptionsCommand)(density)
study_app.command()(ig)
study_app.command()(linearity)
study_app.command()(pendulum)
study_app.command("all")(all_studies)

train_app = make_group("train", "Train small networks; equal seeds give equal networks.")
train_app.command()(digits)
