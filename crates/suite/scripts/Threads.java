// Threads of Java: pools, parallel streams, monitors, concurrent maps, futures, timers, and garbage.
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;

public class Threads {
    static int turn;

    static long scramble(long seed, int rounds) {
        for (int i = 0; i < rounds; i++) seed = Long.rotateLeft(seed * 6364136223846793005L + i, 9);
        return seed;
    }

    static String monitors() throws Exception {
        Object lock = new Object();
        StringBuilder said = new StringBuilder();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            int me = n;
            threads.add(new Thread(() -> {
                for (int i = 0; i < 200; i++) {
                    synchronized (lock) {
                        try {
                            while (turn % 3 != me) lock.wait();
                        } catch (InterruptedException e) {
                            return;
                        }
                        said.append((char) ('a' + me));
                        turn++;
                        lock.notifyAll();
                    }
                }
            }));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        return said.toString().equals("abc".repeat(200)) + " " + said.length();
    }

    static String pools() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        ConcurrentHashMap<Integer, LongAdder> counts = new ConcurrentHashMap<>();
        List<Future<Long>> results = new ArrayList<>();
        for (int n = 0; n < 200; n++) {
            int number = n;
            results.add(pool.submit(() -> {
                List<byte[]> garbage = new ArrayList<>();
                for (int i = 0; i < 50; i++) garbage.add(new byte[number * 100 + i]);
                counts.computeIfAbsent(number % 13, k -> new LongAdder()).add(garbage.size());
                return scramble(number, 20000);
            }));
        }
        long sum = 0;
        for (Future<Long> result : results) sum = Long.rotateLeft(sum, 1) ^ result.get();
        pool.shutdown();
        boolean ended = pool.awaitTermination(10, TimeUnit.MINUTES);
        return Long.toHexString(sum) + " " + ended + " " + new TreeMap<>(counts);
    }

    static String timers() throws Exception {
        ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);
        CountDownLatch latch = new CountDownLatch(20);
        ScheduledFuture<?> ticking = clock.scheduleAtFixedRate(latch::countDown, 1, 2, TimeUnit.MILLISECONDS);
        boolean all = latch.await(10, TimeUnit.MINUTES);
        ticking.cancel(false);
        clock.shutdown();
        return all + " " + clock.awaitTermination(10, TimeUnit.MINUTES);
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println(monitors());
        System.out.println(pools());
        System.out.println(timers());
        System.out.println(IntStream.range(0, 2000).parallel().mapToLong(i -> scramble(i, 3000)).reduce(0, (a, b) -> a ^ b));
        String text = Files.readString(Path.of("input/text"));
        Map<String, Long> words = text.lines().parallel().flatMap(line -> Stream.of(line.split(" ")))
            .collect(Collectors.groupingByConcurrent(word -> word, Collectors.counting()));
        System.out.println(words.size() + " " + new TreeMap<>(words).firstEntry());
        CompletableFuture<Long> left = CompletableFuture.supplyAsync(() -> scramble(1, 500000));
        System.out.println(left.thenCombine(CompletableFuture.supplyAsync(() -> scramble(2, 500000)), (a, b) -> a - b).get());
        Process process = new ProcessBuilder("/bin/sh", "-c", "echo from a child; exit 5").start();
        System.out.print(new String(process.getInputStream().readAllBytes()));
        System.out.println(process.waitFor());
    }
}
