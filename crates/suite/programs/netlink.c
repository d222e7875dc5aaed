/* A netlink socket: loopback is interface 1 of the network that the program started in. */
#include "suite.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 1; going_on(); round++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        struct {
            struct nlmsghdr head;
            struct ifinfomsg body;
        } ask = {{sizeof ask, RTM_GETLINK, NLM_F_REQUEST, round, 0}, {.ifi_index = 1}};
        char answer[8192] __attribute__((aligned(8)));
        CHECK(fd >= 0 && send(fd, &ask, sizeof ask, 0) == sizeof ask);
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        struct nlmsghdr *head = (void *)answer;
        CHECK(n > 0 && NLMSG_OK(head, n) && head->nlmsg_type == RTM_NEWLINK && head->nlmsg_seq == round);
        struct ifinfomsg *link = NLMSG_DATA(head);
        CHECK(link->ifi_index == 1 && link->ifi_flags & IFF_LOOPBACK && close(fd) == 0);
        char name[IF_NAMESIZE];
        CHECK(if_indextoname(1, name) && strcmp(name, "lo") == 0);
    }
    return suite_end();
}
