"""A program on a real GPU: holds memory, computes, or fails as a broken kernel does. Standard library and driver only.

    python cuda_program.py --mib 2048              hold, until it is ended
    python cuda_program.py --mib 64 --busy         ... and compute without a pause
    python cuda_program.py --mib 64 --fault        write to an address that is nobody's: the driver reports an Xid

It prints READY once it holds its memory. With --fault it ends with 3 when the driver told it of the fault.
"""

import argparse
import ctypes
import sys
import time

KERNELS = b"""
.version 6.5
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 cycles) {
    .reg .pred %more;
    .reg .b64 %r<5>;
    ld.param.u64 %r1, [cycles];
    mov.u64 %r2, %clock64;
again:
    mov.u64 %r3, %clock64;
    sub.u64 %r4, %r3, %r2;
    setp.lt.u64 %more, %r4, %r1;
    @%more bra again;
    ret;
}
.visible .entry poke(.param .u64 where) {
    .reg .b32 %one;
    .reg .b64 %r<2>;
    ld.param.u64 %r1, [where];
    mov.u32 %one, 1;
    st.global.u32 [%r1], %one;
    ret;
}
"""
BLOCKS, THREADS = 512, 256
SPIN_CYCLES = 200_000_000  # a tenth of a second at 2 GHz
NOBODYS = 0xDEAD0000000


class Cuda:
    """The driver's API on the first GPU. Raises: OSError, with the driver's error number."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self._module = ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(self._module), KERNELS)

    def __call__(self, name: str, *arguments: object) -> None:
        error = getattr(self._cuda, name)(*arguments)
        if error:
            raise OSError(error, f"{name} failed with error {error}")

    def hold(self, mib: int) -> None:
        """Allocate memory, and keep it."""
        self("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib * 2**20))

    def run(self, kernel: bytes, argument: int, blocks: int = 1, threads: int = 1) -> None:
        """Launch a kernel and wait for its end."""
        function, value = ctypes.c_void_p(), ctypes.c_uint64(argument)
        self("cuModuleGetFunction", ctypes.byref(function), self._module, kernel)
        words = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        self("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, words, None)
        self("cuCtxSynchronize")


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--fault", action="store_true")
    wanted = parser.parse_args()
    cuda = Cuda()
    cuda.hold(wanted.mib)
    print("READY", flush=True)
    if wanted.fault:
        try:
            cuda.run(b"poke", NOBODYS)
        except OSError as error:
            print(error, flush=True)
            return 3
        return 0
    while True:
        if wanted.busy:
            cuda.run(b"spin", SPIN_CYCLES, BLOCKS, THREADS)
        else:
            time.sleep(60)


if __name__ == "__main__":
    sys.exit(main())
