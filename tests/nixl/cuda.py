"""Memory of GPUs through the CUDA driver, by ctypes: on the fake driver of tests/emu, or on a real one.

What a test calls itself waits until the GPU has done it. The functions may be called by any thread.
"""
import ctypes
import functools

import numpy as np

KINDS = ("cuda", "vmm", "pool")  # cuMemAlloc; VMM, a mapping per chunk; a memory pool
CHUNK = 2 << 20  # of VMM: the granularity that drivers have
_library = None


class CudaError(Exception):
    """A call of the driver that failed."""


def load(path):
    """As an application that begins to use CUDA. `path`: the driver's library."""
    global _library
    if _library is None:
        _library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        call("cuInit", 0)


def call(name, *arguments):
    """Plain numbers are ints of C; u64() is for sizes and addresses."""
    code = getattr(_library, name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        _library.cuGetErrorString(code, ctypes.byref(text))
        raise CudaError(f"{name}: {code} {(text.value or b'?').decode()}")


def u64(number):
    return ctypes.c_uint64(number)


def devices():
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


@functools.cache
def context(device):
    made = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(made), device)
    return made


def enter(device):
    """Of the calling thread."""
    call("cuCtxSetCurrent", context(device))


@functools.cache
def stream(device):
    made = ctypes.c_void_p()
    enter(device)
    call("cuStreamCreate", ctypes.byref(made), 1)
    return made


class Block:
    """Allocated memory of one device."""

    def __init__(self, address, device):
        self.address, self.device = address, device

    def write(self, offset, data):
        enter(self.device)
        data = np.ascontiguousarray(data)
        if len(data):
            call("cuMemcpyHtoD_v2", u64(self.address + offset), ctypes.c_void_p(data.ctypes.data), u64(len(data)))

    def read(self, offset, size):
        enter(self.device)
        data = np.empty(size, np.uint8)
        if size:
            call("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data), u64(self.address + offset), u64(size))
        return data

    def fill(self, offset, size, byte):
        self.write(offset, np.full(size, byte, np.uint8))


class Plain(Block):
    def __init__(self, size, device):
        enter(device)
        at = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(at), u64(size))
        super().__init__(at.value, device)

    def free(self):
        enter(self.device)
        call("cuMemFree_v2", u64(self.address))


class Pool(Block):
    """From the device's default pool: cudaMallocAsync."""

    def __init__(self, size, device):
        enter(device)
        at = ctypes.c_uint64()
        call("cuMemAllocAsync", ctypes.byref(at), u64(size), stream(device))
        call("cuStreamSynchronize", stream(device))
        super().__init__(at.value, device)

    def free(self):
        enter(self.device)
        call("cuMemFreeAsync", u64(self.address), stream(self.device))
        call("cuStreamSynchronize", stream(self.device))


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class Virtual(Block):
    """Addresses that stay, and chunks of memory that come and go behind them: what PyTorch's expandable
    segments are made of. Each chunk is an allocation and a mapping of its own."""

    def __init__(self, size, device):
        self.size = -(-size // CHUNK) * CHUNK
        self.chunks = {}
        enter(device)
        at = ctypes.c_uint64()
        call("cuMemAddressReserve", ctypes.byref(at), u64(self.size), u64(0), u64(0), u64(0))
        super().__init__(at.value, device)
        for start in range(0, self.size, CHUNK):
            self.map(start)

    def map(self, start, device=None):
        device = self.device if device is None else device
        enter(device)
        place = _Location(1, device)  # CU_MEM_LOCATION_TYPE_DEVICE
        handle = ctypes.c_uint64()
        call("cuMemCreate", ctypes.byref(handle), u64(CHUNK), ctypes.byref(_Properties(1, 0, place)), u64(0))
        call("cuMemMap", u64(self.address + start), u64(CHUNK), u64(0), handle, u64(0))
        call("cuMemSetAccess", u64(self.address + start), u64(CHUNK), ctypes.byref(_Access(place, 3)), u64(1))
        self.chunks[start] = handle

    def unmap(self, start):
        enter(self.device)
        call("cuCtxSynchronize")
        call("cuMemUnmap", u64(self.address + start), u64(CHUNK))
        call("cuMemRelease", self.chunks.pop(start))

    def free(self):
        for start in list(self.chunks):
            self.unmap(start)
        call("cuMemAddressFree", u64(self.address), u64(self.size))


def allocate(kind, size, device=0):
    return {"cuda": Plain, "vmm": Virtual, "pool": Pool}[kind](size, device)
