"""Ask a server what one asks the library, and get the same results: ``Client("host:port").restrict("acas", Q, R)``."""

from .aio import AsyncClient as AsyncClient
from .models import Model as Model
from .models import Remote as Remote
from .sync import Client as Client
