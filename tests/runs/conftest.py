from tests.tasks import write_task

__all__ = ["write_task"]  # for tests of the paper
