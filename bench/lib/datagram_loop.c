// A bare loop over datagrams: receives at a port of loopback, and sends to another one, what came from
// there to who sent last, with recvmmsg and sendmmsg and the offload of both. What a relay is compared
// with.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif
#define BATCH 32
#define ROOM 65536

static char space[BATCH][ROOM];

int main(int count, char **words) {
    if (count != 3) return 2;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))}, sink = own, last = own;
    own.sin_addr.s_addr = sink.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sink.sin_port = htons(atoi(words[2]));
    int one = 1, large = 8 << 20, at = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(at, SOL_UDP, UDP_GRO, &one, sizeof one);
    setsockopt(at, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    setsockopt(at, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    if (bind(at, (struct sockaddr *)&own, sizeof own)) return 1;
    for (;;) {
        struct mmsghdr in[BATCH] = {0}, out[BATCH] = {0};
        struct iovec to[BATCH], from[BATCH];
        struct sockaddr_in who[BATCH];
        char told[BATCH][64], say[BATCH][CMSG_SPACE(sizeof(uint16_t))];
        for (int i = 0; i < BATCH; i++) {
            to[i] = (struct iovec){space[i], ROOM};
            in[i].msg_hdr = (struct msghdr){&who[i], sizeof who[i], &to[i], 1, told[i], sizeof told[i], 0};
        }
        int got = recvmmsg(at, in, BATCH, MSG_WAITFORONE, NULL);
        for (int i = 0; i < got; i++) {
            int segment = 0;
            for (struct cmsghdr *c = CMSG_FIRSTHDR(&in[i].msg_hdr); c; c = CMSG_NXTHDR(&in[i].msg_hdr, c))
                if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) memcpy(&segment, CMSG_DATA(c), sizeof segment);
            int is_back = who[i].sin_port == sink.sin_port;
            if (!is_back) last = who[i];
            who[i] = is_back ? last : sink;
            from[i] = (struct iovec){space[i], in[i].msg_len};
            out[i].msg_hdr = (struct msghdr){&who[i], sizeof who[i], &from[i], 1, NULL, 0, 0};
            if (segment && segment < (int)in[i].msg_len) {
                out[i].msg_hdr.msg_control = say[i];
                out[i].msg_hdr.msg_controllen = sizeof say[i];
                struct cmsghdr *c = CMSG_FIRSTHDR(&out[i].msg_hdr);
                c->cmsg_level = SOL_UDP, c->cmsg_type = UDP_SEGMENT, c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
                uint16_t size = segment;
                memcpy(CMSG_DATA(c), &size, sizeof size);
            }
        }
        for (int sent = 0, now; sent < got; sent += now)
            if ((now = sendmmsg(at, out + sent, got - sent, 0)) <= 0) now = 1;
    }
}
