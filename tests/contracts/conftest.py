"""No test of this directory leaves a task, a child process or a socket."""

from tests.leaks import no_child_or_socket_left, no_task_left, no_task_left_on_loop

__all__ = ["no_child_or_socket_left", "no_task_left", "no_task_left_on_loop"]
