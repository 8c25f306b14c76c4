"""Triton's interpreter, with its language patched once a launch.

Triton patches triton.language for a launch, and again whenever a kernel calls a device function, which finds all as it
was left: a quarter of what interpreting takes.
"""

from triton.runtime import interpreter


def patch_once_a_launch() -> None:
    """From here on in this process. A Triton that patches in another way is left alone."""
    if hasattr(interpreter, "_LangPatchScope"):
        interpreter._patch_lang = OnceALaunch(interpreter._patch_lang)


class OnceALaunch:
    """``_patch_lang``, but for modules that the launch under way has patched already."""

    def __init__(self, patch):
        self.patch, self.patched = patch, set()

    def __call__(self, fn):
        """The launch asks first, and restores its scope when it ends; device functions drop theirs."""
        modules = set(map(id, fn.__globals__.values())) & set(map(id, (interpreter.tl, interpreter.tl.core)))
        if modules <= self.patched:
            return interpreter._LangPatchScope()
        scope = self.patch(fn)
        self.patched |= modules
        restore = scope.restore

        def end():
            self.patched.clear()
            restore()

        scope.restore = end
        return scope
