// A bare loop between a TUN device and a UDP socket: what the kernel hands over goes to the other
// loop as it is, cut into datagrams, and back, with the offload of both. What a gateway is compared
// with.
//
//     tun_loop DEVICE OWN-PORT OTHER-ADDRESS OTHER-PORT
//
// Prints `begin` once the device is up, and on SIGTERM how many packets came in pieces that were
// not whole, and are lost.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif
#ifndef SOL_UDP
#define SOL_UDP 17
#endif
// Octets of a datagram, of one message of many, and of the largest packet with its header.
#define DATAGRAM 1440
#define MESSAGE (44 * DATAGRAM)
#define ROOM (1 << 17)
#define BATCH 16
#define MAGIC 0x62617265

struct head {
    uint32_t magic, length;
};

static char space[BATCH][ROOM], packet[ROOM];
static size_t have, whole;
static volatile sig_atomic_t is_over;

static void end(int number) {
    (void)number;
    is_over = 1;
}

static void post(int at, const char *from, size_t length) {
    char say[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec piece = {(char *)from, length};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (length > DATAGRAM) {
        message.msg_control = say;
        message.msg_controllen = sizeof say;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_UDP, c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        uint16_t size = DATAGRAM;
        memcpy(CMSG_DATA(c), &size, sizeof size);
    }
    while (sendmsg(at, &message, 0) < 0 && !is_over) {
        struct pollfd room = {.fd = at, .events = POLLOUT};
        poll(&room, 1, 10);
    }
}

// Takes what arrived together. Returns how many packets are lost.
static unsigned take(int tun, const char *from, size_t length) {
    unsigned lost = 0;
    while (length > 0) {
        struct head head = {0};
        if (length >= sizeof head) memcpy(&head, from, sizeof head);
        if (head.magic == MAGIC) {
            if (have < whole) lost++;
            have = 0, whole = head.length;
            from += sizeof head, length -= sizeof head;
        } else if (have == whole) {
            return lost + 1;
        }
        size_t more = whole - have < length ? whole - have : length;
        if (have == 0 && more == whole) {
            // All of it lies here.
            if (write(tun, from, whole) < 0) lost++;
        } else {
            memcpy(packet + have, from, more);
            if (have + more == whole && write(tun, packet, whole) < 0) lost++;
        }
        have += more;
        from += more, length -= more;
    }
    return lost;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    signal(SIGTERM, end);
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    strncpy(request.ifr_name, words[1], IFNAMSIZ - 1);
    if (tun < 0 || ioctl(tun, TUNSETIFF, &request) < 0) return 1;
    if (ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) < 0) return 1;
    int one = 1, large = 8 << 20, at = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    setsockopt(at, SOL_UDP, UDP_GRO, &one, sizeof one);
    setsockopt(at, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof large);
    setsockopt(at, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    struct sockaddr_in other = own;
    other.sin_port = htons(atoi(words[4]));
    if (!inet_aton(words[3], &other.sin_addr)) return 2;
    if (bind(at, (struct sockaddr *)&own, sizeof own)) return 1;
    if (connect(at, (struct sockaddr *)&other, sizeof other)) return 1;
    puts("begin");
    fflush(stdout);
    unsigned lost = 0;
    static char read_space[sizeof(struct head) + ROOM];
    while (!is_over) {
        struct pollfd ready[2] = {{.fd = tun, .events = POLLIN}, {.fd = at, .events = POLLIN}};
        if (poll(ready, 2, -1) < 0) continue;
        for (int i = 0; i < BATCH && ready[0].revents; i++) {
            ssize_t length = read(tun, read_space + sizeof(struct head), ROOM);
            if (length <= 0) break;
            struct head head = {MAGIC, length};
            memcpy(read_space, &head, sizeof head);
            length += sizeof head;
            for (ssize_t sent = 0; sent < length; sent += MESSAGE)
                post(at, read_space + sent, length - sent < MESSAGE ? length - sent : MESSAGE);
        }
        if (ready[1].revents) {
            struct mmsghdr in[BATCH] = {0};
            struct iovec to[BATCH];
            for (int i = 0; i < BATCH; i++) {
                to[i] = (struct iovec){space[i], ROOM};
                in[i].msg_hdr = (struct msghdr){.msg_iov = &to[i], .msg_iovlen = 1};
            }
            int got = recvmmsg(at, in, BATCH, MSG_DONTWAIT, NULL);
            for (int i = 0; i < got; i++) lost += take(tun, space[i], in[i].msg_len);
        }
    }
    printf("%u\n", lost);
}
