// SPDX-License-Identifier: GPL-2.0

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Random;

/**
 * An echo server with a selector, and a client with streams: both ways in which Java's programs use sockets.
 *
 * <p>serve PORT | talk HOST PORT CONNECTIONS BYTES
 */
public class Echo {
    static void serve(int port) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(port));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        for (;;) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    channel.configureBlocking(false);
                    channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(1 << 16));
                } else {
                    echo(key);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    /** Sends back what there is; what does not fit waits in the buffer. */
    static void echo(SelectionKey key) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        boolean end = buffer.hasRemaining() && channel.read(buffer) < 0;
        buffer.flip();
        channel.write(buffer);
        buffer.compact();
        if (end && buffer.position() == 0) {
            channel.close();
            return;
        }
        int ops = buffer.position() > 0 ? SelectionKey.OP_WRITE : 0;
        key.interestOps(ops | (end || !buffer.hasRemaining() ? 0 : SelectionKey.OP_READ));
    }

    static void talk(String host, int port, byte[] bytes) throws Exception {
        try (Socket socket = new Socket(host, port)) {
            InputStream from = socket.getInputStream();
            OutputStream to = socket.getOutputStream();
            Thread writer = new Thread(() -> {
                try {
                    to.write(bytes);
                    socket.shutdownOutput();
                } catch (IOException e) {
                    System.err.println(e);
                }
            });
            writer.start();
            byte[] got = new byte[bytes.length];
            new DataInputStream(from).readFully(got);
            writer.join();
            if (!Arrays.equals(got, bytes) || from.read() >= 0) {
                throw new IOException("other bytes came back");
            }
        }
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("serve")) {
            serve(Integer.parseInt(args[1]));
        }
        byte[] bytes = new byte[Integer.parseInt(args[4])];
        new Random().nextBytes(bytes);
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            talk(args[1], Integer.parseInt(args[2]), bytes);
        }
        System.out.println("ok");
    }
}
