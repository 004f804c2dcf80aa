"""Clients of a server: ``Client("host:port").restrict("acas", start, end)`` returns what the library returns."""

from ...errors import MissingError

try:
    import grpc as _grpc
except ImportError as problem:  # the library itself does not need it
    hint = 'pip install "exactline[serve]"'
    raise MissingError("The client needs grpcio.", where="exactline.rpc.client", hint=hint) from problem

from .aio import AsyncClient as AsyncClient
from .models import ModelDescription as ModelDescription
from .models import RemoteModel as RemoteModel
from .sync import Client as Client

del _grpc
