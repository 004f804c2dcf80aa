"""Ask a server what one asks the library, and get the same results: ``Client("host:port").restrict("acas", Q, R)``."""

from ...errors import MissingError

try:
    import grpc as _grpc
except ImportError as problem:  # the library itself does without
    hint = 'pip install "exactline[serve]"'
    raise MissingError("The client needs grpcio.", where="exactline.rpc.client", hint=hint) from problem

from .aio import AsyncClient as AsyncClient
from .models import Model as Model
from .models import Remote as Remote
from .sync import Client as Client

del _grpc
