"""The libraries whose clients can be recorded, and the changes to their classes while a history is open.

kafka-python and aiokafka are written in Python: their constructors are extended in place, so that it makes no
difference how a module has imported them. The clients of confluent-kafka are types in C, which cannot be changed:
every name of a loaded module that means such a type means a subclass until the history is closed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple

from minikafka.testing import wrap_aiokafka, wrap_confluent, wrap_kafka_python
from minikafka.testing.history_tape import Tape

Attach = Callable[[Any, Mapping[str, Any]], None]
"""Called with each new client and its configuration, as far as that is known."""


class Kind(NamedTuple):
    """A class of clients. `set_up`: called with a client, its tape and its configuration."""

    module: str
    name: str
    role: str
    recorded: type
    set_up: Callable[[Any, Tape, Mapping[str, Any]], None]
    is_native: bool = False

    @property
    def base(self) -> type | None:
        """The class, if its library has been imported."""
        module = sys.modules.get(self.module)
        return None if module is None else getattr(module, self.name)


def _without_conf(set_up: Callable[[Any, Tape], None]) -> Callable[..., None]:
    return lambda client, tape, _: set_up(client, tape)


_PRODUCER, _CONSUMER = "producer", "consumer"
_CONFLUENT: Final = "confluent_kafka.cimpl"
KINDS: Final = (
    Kind(
        _CONFLUENT,
        "Producer",
        _PRODUCER,
        wrap_confluent.PRODUCER,
        wrap_confluent.set_up_producer,
        True,
    ),
    Kind(
        _CONFLUENT,
        "Consumer",
        _CONSUMER,
        wrap_confluent.CONSUMER,
        wrap_confluent.set_up_consumer,
        True,
    ),
    Kind(
        "kafka.producer.kafka",
        "KafkaProducer",
        _PRODUCER,
        wrap_kafka_python.PRODUCER,
        _without_conf(wrap_kafka_python.set_up_producer),
    ),
    Kind(
        "kafka.consumer.group",
        "KafkaConsumer",
        _CONSUMER,
        wrap_kafka_python.CONSUMER,
        _without_conf(wrap_kafka_python.set_up_consumer),
    ),
    Kind(
        "aiokafka.producer.producer",
        "AIOKafkaProducer",
        _PRODUCER,
        wrap_aiokafka.PRODUCER,
        _without_conf(wrap_aiokafka.set_up_producer),
    ),
    Kind(
        "aiokafka.consumer.consumer",
        "AIOKafkaConsumer",
        _CONSUMER,
        wrap_aiokafka.CONSUMER,
        _without_conf(wrap_aiokafka.set_up_consumer),
    ),
)
"""All classes of clients that can be recorded."""


def kind_of(client: object) -> Kind | None:
    """Return the kind of a client; None for any other object."""
    for kind in KINDS:
        if kind.base is not None and isinstance(client, kind.base):
            return kind
    return None


_made: Final[dict[type[Any], type[Any]]] = {}
_attach: Final[list[Attach]] = []
"""What is called with each new client while clients are recorded."""


def recording(cls: type[Any], kind: Kind) -> type[Any]:
    """Return the subclass of a class of clients that records.

    The methods that record stand between the class of the library and a subclass of it, so that they get what such a
    subclass sends: the bytes of a SerializingProducer, or the arguments that an own subclass passes on.
    """
    base = kind.base
    assert base is not None
    if base not in _made:
        _made[base] = (
            _native_subclass(base, kind) if kind.is_native else _named(base, kind.recorded)
        )
    if cls is base or issubclass(cls, kind.recorded):
        return _made[base] if cls is base else cls
    if cls not in _made:
        _made[cls] = _named(cls, _made[base], first=True)
    return _made[cls]


def _named(cls: type[Any], other: type[Any], *, first: bool = False) -> type[Any]:
    """Return a class with the name of `cls` and both bases; `first`: the methods of `cls` come first."""
    names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    bases = (cls, other) if first else (other, cls)
    made: type[Any] = type(other).__call__(type(other), cls.__name__, bases, names)
    return made


def is_recording(client: object) -> bool:
    """True if the client has a tape, perhaps of a history that is closed."""
    return "_tape" in vars(client) if hasattr(client, "__dict__") else False


class ClassChanges:
    """What `install` has changed, for `undo`. `attach`: called with each new client."""

    def __init__(self, attach: Attach) -> None:
        self._new = attach
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Let all clients be recorded that are created from now on. Libraries not imported yet are imported."""
        _attach.append(self._new)
        self._undo.append(_attach.clear)
        for kind in KINDS:
            if _is_installed(kind.module):
                base = kind.base
                assert base is not None
                if kind.is_native:
                    self._replace(base, kind)
                else:
                    self._extend(base, kind)

    def undo(self) -> None:
        """Take all changes back."""
        while self._undo:
            self._undo.pop()()

    def _extend(self, cls: type, kind: Kind) -> None:
        """Let the constructor of a class in Python attach the new client."""
        original, own = cls.__init__, "__init__" in vars(cls)  # type: ignore[misc]

        def construct(client: Any, *args: Any, **kwargs: Any) -> None:
            original(client, *args, **kwargs)
            if not is_recording(client):
                client.__class__ = recording(type(client), kind)
                _attach[-1](client, conf_of(args, kwargs))

        def restore() -> None:
            if own:
                cls.__init__ = original  # type: ignore[misc]
            else:
                del cls.__init__  # type: ignore[misc]

        construct.__doc__ = original.__doc__
        cls.__init__ = construct  # type: ignore[misc]
        self._undo.append(restore)

    def _replace(self, base: type, kind: Kind) -> None:
        """Let every name of a type in C mean a subclass, and extend the subclasses in Python."""
        cls: type
        for cls in base.__subclasses__():
            if not issubclass(cls, kind.recorded):
                self._extend(cls, kind)
        replacement = recording(base, kind)
        _rename(base, replacement)
        self._undo.append(lambda: _rename(replacement, base))


def _native_subclass(base: type[Any], kind: Kind) -> type[Any]:
    class Lookalike(type):
        """Clients that were created outside of the history are instances too."""

        def __instancecheck__(cls, client: object) -> bool:
            return isinstance(client, base) if cls is made else super().__instancecheck__(client)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, base) if cls is made else super().__subclasscheck__(other)

    def construct(client: Any, *args: Any, **kwargs: Any) -> None:
        conf = conf_of(args, kwargs)
        if conf.get("delivery.report.only.error"):
            # Without reports of successes, no send would have an outcome.
            args, kwargs = ({**conf, "delivery.report.only.error": False},), {}
            client._reports_success = False
        base.__init__(client, *args, **kwargs)
        for attach in _attach[-1:]:
            attach(client, conf)

    names = {"__init__": construct, "__module__": base.__module__, "__doc__": base.__doc__}
    made: type[Any] = Lookalike(base.__name__, (kind.recorded, base), names)
    return made


def conf_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration in the arguments of a constructor of confluent-kafka."""
    conf = dict(args[0]) if args and isinstance(args[0], Mapping) else {}
    return {**conf, **{name.replace("_", "."): value for name, value in kwargs.items()}, **kwargs}


def _rename(before: type, after: type) -> None:
    """Let each name of a loaded module that means one class mean the other, except in the module that defines it."""
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType):
            continue
        try:
            names = object.__getattribute__(
                module, "__dict__"
            )  # a lazy module must not load for this
        except AttributeError:  # such as the modules that cffi makes
            continue
        if names.get("__name__") not in (_CONFLUENT, __name__):
            for name in [name for name, value in list(names.items()) if value is before]:
                names[name] = after


def _is_installed(module: str) -> bool:
    """Import the module if its library is installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program may not use this library
            __import__(module)
    except ImportError:
        return False
    return True
