// A bare splice loop: accepts connections at a port of loopback and joins each with one to another
// port, a thread and a pipe for each direction. What a relay is compared with.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in at(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void *direction(void *sockets) {
    int from = (intptr_t)sockets & 0xffff, to = (intptr_t)sockets >> 16, ends[2];
    if (pipe(ends)) return NULL;
    fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    for (ssize_t there; (there = splice(from, NULL, ends[1], NULL, 1 << 20, SPLICE_F_MOVE)) > 0;)
        for (ssize_t moved; there > 0; there -= moved)
            if ((moved = splice(ends[0], NULL, to, NULL, there, SPLICE_F_MOVE)) <= 0) return NULL;
    shutdown(to, SHUT_WR);
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in own = at(words[1]), other = at(words[2]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (void *)&own, sizeof own) || listen(listener, 1024)) return 1;
    for (;;) {
        intptr_t near = accept(listener, NULL, NULL), far = socket(AF_INET, SOCK_STREAM, 0);
        if (near < 0 || connect(far, (void *)&other, sizeof other)) return 1;
        setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        pthread_t up, down;
        pthread_create(&up, NULL, direction, (void *)(near | far << 16));
        pthread_create(&down, NULL, direction, (void *)(far | near << 16));
        pthread_detach(up);
        pthread_detach(down);
    }
}
