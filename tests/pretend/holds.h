/* Who holds pretend VRAM.
 *
 * A hold is a file PID.GPU.KIND.BORN in the holds directory, KIND being C (compute), G
 * (graphics) or M (MPS). Its size is the bytes held: it is a hole and takes no space. The
 * process keeps a record lock on it, so its life needs no look at /proc: the kernel drops the
 * lock when the process ends, is a zombie or calls exec, nobody mistakes another process with
 * the same pid for it, and one that may not see the process can tell too.
 *
 * The file begins with a line of fixed width:
 *
 *   died=MICROSECONDS delay=MILLISECONDS ghost=0
 *
 * `died` is when somebody first saw it dead, 0 before. Its bytes stay in use for `delay` more:
 * -1 for ever, -2 as long as the state file says (release_ms). A ghost stays in the driver's
 * process lists meanwhile. Then the file is removed, and a line goes to `released`:
 *
 *   FREE_SINCE DIED PID GPU BYTES          (both times in microseconds)
 *
 * Who may not write into a hold counts it as in use until somebody else has seen it dead.
 * An allocation that did not fit goes to `oom`:
 *
 *   NOW PID GPU WANTED_BYTES FREE_BYTES
 */
#ifndef PRETEND_HOLDS_H
#define PRETEND_HOLDS_H
#include "state.h"
#pragma GCC visibility push(hidden)

enum { MAX_HOLDS = 256, NEVER = -1, AS_THE_STATE_SAYS = -2 };

struct hold {
    int pid, alive, ghost;
    unsigned gpu;
    char kind;
    uint64_t bytes;
};

/* What is in use now, at most MAX_HOLDS. Writes down deaths, removes what has come back. */
unsigned holds_list(const struct state *state, struct hold found[MAX_HOLDS]);

/* Takes `bytes` for this process, gives back where negative; 0 where `capacity` is too small. */
int holds_take(const struct state *state, unsigned gpu, int64_t bytes, int64_t capacity);

/* How the holds that this process takes from now on behave. */
void holds_behave(char kind, int64_t delay_ms, int ghost);

#pragma GCC visibility pop
#endif
