"""Settings and where each came from: option, then environment, then configuration file, then default."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dagkit.config.files import ConfigFile, find_files, project_root, read_file, split_location
from dagkit.config.targets import Target, read_targets
from dagkit.errors import ConfigError
from dagkit.settings import CoordinatorSettings, GeneralSettings, WorkerSettings, options_of

if TYPE_CHECKING:
    from dagkit.coordinator.spans import Spans
    from dagkit.queues.base import Transport
    from dagkit.stores.base import Store

__all__ = ["Settings", "Target", "load_settings"]

Section = TypeVar("Section")

_SECTIONS: Mapping[str, type[Any]] = {
    "": GeneralSettings,
    "worker.": WorkerSettings,
    "coordinator.": CoordinatorSettings,
}
_FORMER = {
    "JOBQ_WORKFLOW": "JOBQ_WORKFLOW_PREFIX (or DAGKIT_STORE)",
    "JOBQ_WORKFLOW_STATE": "JOBQ_WORKFLOW_PREFIX (or DAGKIT_STORE)",
}


@dataclass(frozen=True)
class Settings:
    """What applies to this process.

    Attributes:
        store: Url of the store (`azure://account/prefix`, `memory:`, `sqlite:<path>`) or a `.dagkit` folder's path.
        sources: Setting (`store`, `worker.slots`) -> `flag`, `env NAME`, `config PATH` or `default`.
        config_paths: The files that were read, the one that wins first.
    """

    store: str
    general: GeneralSettings
    worker: WorkerSettings
    coordinator: CoordinatorSettings
    targets: Mapping[str, Target]
    sources: Mapping[str, str]
    config_paths: tuple[Path, ...] = ()
    logging: Mapping[str, Any] = field(default_factory=dict)

    def spans(self) -> Spans | None:
        """What the coordinators of this process tell of runs, if tracing is wanted; its workers' tasks are told too.

        `ConfigError` if no exporter is installed, `MissingExtra`.
        """
        if not self.general.tracing:
            return None
        from dagkit.coordinator.spans import Spans, configured_provider

        os.environ["DAGKIT_TRACING"] = "1"
        return Spans(configured_provider())

    def configure_logging(self) -> bool:
        """Follow the `[logging]` table, if there is one; returns whether there is. `ConfigError`."""
        if self.logging:
            from dagkit.config import logs

            logs.apply(self.logging, f"{self.config_paths[0]}: [logging]")
        return bool(self.logging)

    @property
    def default_target(self) -> str:
        """Name of the target that runs use unless they say otherwise."""
        return self.general.target

    def open_store(self) -> Store:
        """The store; made on first use. The caller closes it."""
        from dagkit.stores import open_store

        return open_store(self.store, blobs=self.general.blobs)

    def open_transport(self) -> Transport:
        """The service that carries the task queues: the store's own unless `queues` says otherwise."""
        from dagkit.queues import open_transport, service_url

        return open_transport(service_url(self.general.queues, self.store))

    def target(self, name: str | None = None) -> Target:
        """A target by name, or the default one. `ConfigError` that lists the known ones."""
        name = name or self.default_target
        if name not in self.targets:
            raise ConfigError(
                f"no target {name!r}; known: {', '.join(self.targets)}. "
                f"Targets are tables of dagkit.toml: [targets.{name}]."
            )
        return self.targets[name]


@dataclass(frozen=True)
class _Layer:
    """Values from one place, by dotted name; `label` says which place, per name."""

    values: Mapping[str, Any]
    label: Mapping[str, str]


def load_settings(
    options: Mapping[str, Any] | None = None,
    *,
    store: str | None = None,
    config: str | Path | None = None,
    location: str | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Settings:
    """The settings that apply here.

    Args:
        options: What the caller said outright, by dotted name (`target`, `worker.slots`); None is unsaid.
        store: The store that the caller said outright: a url or a path.
        config: The configuration file to read in place of those that would be found.
        location: The shorthand `<account>/<prefix>` for a store.

    Raises `ConfigError` that names the place of the value that is wrong.
    """
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    for former, current in _FORMER.items():
        if environ.get(former):
            raise ConfigError(f"{former} is a former name and no longer read; set {current}.")
    files = _config_files(config, environ, cwd)
    layers = [_flags(options or {}, store, location), _environment(environ), *map(_file_layer, files)]
    sources: dict[str, str] = {}
    general, worker, coordinator = (_section(prefix, layers, sources) for prefix in _SECTIONS)
    store = _store(layers, sources, cwd)
    targets = read_targets({k: (v, f.path) for f in reversed(files) for k, v in f.targets.items()}, general)
    logging = next((file.logging for file in files if file.logging), {})
    return Settings(store, general, worker, coordinator, targets, sources, tuple(f.path for f in files), logging)


def _config_files(config: str | Path | None, environ: Mapping[str, str], cwd: Path) -> list[ConfigFile]:
    named = config or environ.get("DAGKIT_CONFIG") or environ.get("JOBQ_WORKFLOW_CONFIG")
    if named:
        return [read_file(cwd / Path(named).expanduser())]
    return find_files(cwd, Path(environ.get("HOME") or Path.home()))


def _flags(options: Mapping[str, Any], store: str | None, location: str | None) -> _Layer:
    values = {name: value for name, value in options.items() if value is not None}
    if store is None and location is not None:
        store = split_location(location, "STORAGE/PREFIX")
    if store is not None:
        values["store"] = store
    return _Layer(values, dict.fromkeys(values, "flag"))


def _environment(environ: Mapping[str, str]) -> _Layer:
    values: dict[str, Any] = {}
    label: dict[str, str] = {}
    names = {
        prefix + name: option.env for prefix, kind in _SECTIONS.items() for name, option in options_of(kind).items()
    }
    for name, variables in {**names, "store": ("DAGKIT_STORE", "JOBQ_WORKFLOW_PREFIX")}.items():
        for variable in variables:
            if name not in values and environ.get(variable):
                values[name], label[name] = environ[variable], f"env {variable}"
    if label.get("store") == "env JOBQ_WORKFLOW_PREFIX":
        values["store"] = split_location(values["store"], "JOBQ_WORKFLOW_PREFIX")
    return _Layer(values, label)


def _file_layer(file: ConfigFile) -> _Layer:
    return _Layer(file.values, dict.fromkeys(file.values, f"config {file.path}"))


def _section(prefix: str, layers: Iterable[_Layer], sources: dict[str, str]) -> Any:
    kind = _SECTIONS[prefix]
    values = {}
    for name, option in options_of(kind).items():
        key = prefix + name
        sources[key] = "default"
        for value, source in _said(key, layers):
            values[name] = option.read(value, _where(key, source))
            sources[key] = source
            break
    return kind(**values)


def _store(layers: Iterable[_Layer], sources: dict[str, str], cwd: Path) -> str:
    for value, source in _said("store", layers):
        sources["store"] = source
        if not isinstance(value, (str, Path)) or not str(value).strip():
            raise ConfigError(f"{_where('store', source)}: {value!r} is not a path or an address")
        return _store_url(str(value).strip(), cwd)
    sources["store"] = "default"
    return str((project_root(cwd) or cwd) / ".dagkit")


def _store_url(text: str, cwd: Path) -> str:
    # A single letter before the colon is a Windows drive, not a scheme.
    scheme, colon, _ = text.partition(":")
    if colon and len(scheme) > 1 and scheme.isalnum():
        return text
    return str((cwd / Path(text).expanduser()).absolute())


def _said(key: str, layers: Iterable[_Layer]) -> Iterator[tuple[Any, str]]:
    return ((layer.values[key], layer.label[key]) for layer in layers if key in layer.values)


def _where(key: str, source: str) -> str:
    kind, _, detail = source.partition(" ")
    return {"flag": f"--{key.rpartition('.')[2].replace('_', '-')}", "env": detail}.get(kind, f"{detail}: {key}")
