/* A System V message queue with a partner: types, blocked receive, a full queue. */
#include "suite.h"
#include <sys/msg.h>
static int id;
struct message {
    long type;
    unsigned char text[2000];
};
static void body(void) {
    struct message message;
    for (;;) {
        ssize_t n = msgrcv(id, &message, sizeof message.text, 1, 0);
        if (n < 0) return;
        sleep_ms(2);
        message.type = 2;
        if (msgsnd(id, &message, n, 0) < 0) return;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    id = msgget(IPC_PRIVATE, 0600);
    CHECK(id >= 0);
    pid_t pid = partner(body);
    struct message message;
    for (unsigned round = 0; going_on(); round++) {
        size_t n = 1 + round * 97 % 2000;
        message.type = 1;
        fill(message.text, n, round);
        CHECK(msgsnd(id, &message, n, 0) == 0);
        memset(message.text, 0, n);
        CHECK(msgrcv(id, &message, sizeof message.text, 2, 0) == (ssize_t)n && message.type == 2 && filled(message.text, n, round));
        CHECK_ERROR(msgrcv(id, &message, sizeof message.text, 7, IPC_NOWAIT), ENOMSG);
        struct msqid_ds state;
        CHECK(msgctl(id, IPC_STAT, &state) == 0 && state.msg_qnum == 0);
    }
    CHECK(msgctl(id, IPC_RMID, NULL) == 0 && wait_for(pid) == 0);
    return suite_end();
}
