/* What a request's client is told. */
#include "server/scheduler_state.h"

#include "base/clock.h"

void gs_task_emit(struct gs_task *task, const struct gs_event *event)
{
    if (task->failed)
        return;
    task->last_said = gs_clock_seconds();
    task->sink.event(task->sink.user, event);
}

void gs_task_fail(struct gs_task *task, const struct gs_api_error *error)
{
    struct gs_event event = {.kind = GS_EVENT_ERROR, .error = error, .usage = &task->usage};
    gs_task_emit(task, &event);
    task->failed = true;
}
