#!/bin/sh
# Runs a command of the product; or what Spark asks of a container on Kubernetes: an executor, or,
# under the operator, a driver. What Spark wants is in the environment that it sets.
set -eu

spark_home=$(python -c 'import pyspark; print(pyspark.__path__[0])')

case "${1:-}" in
  executor)
    # One JVM option in each SPARK_JAVA_OPT_n; options hold no spaces or quotes of their own here.
    options=$(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p')
    # shellcheck disable=SC2086
    exec tini -- java $options \
      "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
      -cp "${SPARK_CONF_DIR:-$spark_home/conf}:$spark_home/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  driver)
    shift
    exec tini -- "$spark_home/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
  *)
    exec tini -- "$@"
    ;;
esac
