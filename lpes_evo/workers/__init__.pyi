from ._devices import Device as Device, parse_devices as parse_devices
from ._local import LocalPool as LocalPool
from ._make import make_pool as make_pool
from ._outcome import Completion as Completion, Failure as Failure
from ._pool import Pool as Pool, Usage as Usage
from ._process import DevicePool as DevicePool
from ._ray import RayPool as RayPool
from ._steps import mark_step as mark_step, tell as tell
